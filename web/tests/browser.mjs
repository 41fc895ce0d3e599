// What the browser tests stand on: real Chromium with a fresh profile, pages that note whatever a page should
// never do, and the real `lariat` of the sandbox that this runs in. Nothing here waits for time.
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { connect } from 'node:net';
import { promisify } from 'node:util';
import { chromium } from 'playwright-core';

const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage'];
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
/** Generous, as everywhere: it only ends a wait that has gone wrong. */
export const DEADLINE = Number(process.env.LARIAT_BROWSER_DEADLINE ?? 60_000);

/** Runs lariat; its output. */
export function lariat(...args) {
  return execFileSync('lariat', args, { encoding: 'utf8' });
}

/** The same, while the browser goes on; neither output nor code matter less. */
export async function lariatAsync(...args) {
  return (await promisify(execFile)('lariat', args)).stdout;
}

export function json(...args) {
  return JSON.parse(lariat(...args, '--json'));
}

/** An address that lets one browser in. */
export function address() {
  return json('web', '--no-open').url;
}

export function origin() {
  return new URL(address()).origin;
}

export async function launch() {
  return chromium.launch({ executablePath: process.env.LARIAT_CHROMIUM ?? '/usr/bin/chromium', args: FLAGS });
}

/** A page of its own profile, and what it did that no page of ours does. */
export async function visitor(browser, { dark = false, width = 1280, height = 800 } = {}) {
  const context = await browser.newContext({
    colorScheme: dark ? 'dark' : 'light', viewport: { width, height }, timezoneId: 'UTC', reducedMotion: 'reduce',
  });
  context.setDefaultTimeout(DEADLINE);
  const page = await context.newPage();
  const misdeeds = [];
  const note = (what) => misdeeds.push(what);
  page.on('dialog', (dialog) => { note(`dialog: ${dialog.message()}`); void dialog.dismiss(); });
  page.on('popup', (popup) => note(`popup: ${popup.url()}`));
  page.on('pageerror', (error) => note(`error: ${error.message}`));
  page.on('console', (message) => {
    // What the network does is told where it matters.
    if (message.type() === 'error' && !message.text().includes('Failed to load resource') && !/net::ERR_|WebSocket/.test(message.text())) note(`console: ${message.text()}`);
  });
  page.on('framenavigated', (frame) => {
    if (frame !== page.mainFrame() || !/^(http:\/\/127\.0\.0\.1:\d+\/|about:blank)/.test(frame.url())) note(`went to ${frame.url()}`);
  });
  context.on('request', (request) => {
    const url = new URL(request.url());
    if (url.hostname !== '127.0.0.1' && url.protocol !== 'about:') note(`asked for ${request.url()}`);
  });
  await page.addInitScript(() => {
    addEventListener('securitypolicyviolation', (e) => console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`));
  });
  await page.addInitScript({ content: AXE });
  return { context, page, misdeeds };
}

/** Lets a visitor in, to the fleet. */
export async function enter(guest, view = '') {
  await guest.page.goto(address());
  await guest.page.locator('[data-line=live]').waitFor();
  if (view) await guest.page.goto(`${new URL(guest.page.url()).origin}/${view}`);
}

/** The row of a session in the fleet. */
export function rowOf(page, name) {
  return page.locator('a.line', { has: page.locator('.name', { hasText: new RegExp(`${name}$`) }) });
}

/** Waits for a group's heading in front of a row. */
export async function isIn(page, name, group) {
  await page.waitForFunction(([name, group]) => {
    let heading = '';
    for (const item of [...document.querySelectorAll('.rows .item')].sort((a, b) => parseFloat(a.style.top) - parseFloat(b.style.top))) {
      const h2 = item.querySelector('h2');
      if (h2) heading = h2.textContent.replace(/\s*\d+$/, '');
      const label = item.querySelector('.name')?.lastChild?.textContent?.trim();
      if (label === name) return heading === group;
    }
    return false;
  }, [name, group]);
}

/** What axe finds that is serious. */
export async function serious(page) {
  const found = await page.evaluate(async () => {
    const run = await window.axe.run(document, { resultTypes: ['violations'] });
    return run.violations.filter((v) => v.impact === 'serious' || v.impact === 'critical')
      .map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => `${n.html} ${n.failureSummary}`).join(' | ')}`);
  });
  return found;
}

/** Says these bytes to a port and reads the head of the answer. */
export function say(port, text) {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => socket.write(text));
    let heard = '';
    socket.setTimeout(DEADLINE, () => reject(new Error('no answer')));
    socket.on('data', (bytes) => {
      heard += bytes;
      if (heard.includes('\r\n\r\n')) {
        socket.destroy();
        resolve(heard);
      }
    });
    socket.on('error', reject);
    socket.on('close', () => resolve(heard));
  });
}

/** Holds that a guest has done nothing a page should not. */
export function blameless(guest) {
  assert.deepEqual(guest.misdeeds, []);
}
