// How long a browser takes from an address to the first list: the page, and beside it the least page that could
// show the same list (one file, ten lines, no framework). Prints one object; `bench/src/page.rs` reads it.
//
//   node first-list.mjs LARIAT ROUNDS
import { execFileSync } from 'node:child_process';
import { createServer } from 'node:http';
import { chromium } from 'playwright-core';

const [lariat, rounds] = [process.argv[2], Number(process.argv[3])];
const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage'];
const ask = (...args) => execFileSync(lariat, args, { encoding: 'utf8', maxBuffer: 1 << 30 });

const FLOOR = `<!doctype html><meta charset=utf-8><title>floor</title><body><script>
fetch('/list').then((r) => r.json()).then(({ sessions }) => {
  for (const s of sessions.slice(0, 40)) {
    const row = document.body.appendChild(document.createElement('p'));
    row.textContent = [s.status, s.handle ?? s.native_id, s.reason, s.cwd].join(' ');
    row.className = 'line';
  }
});</script>`;

const list = ask('ls', '--json');
const server = createServer((request, answer) => {
  answer.setHeader('Content-Type', request.url === '/list' ? 'application/json' : 'text/html');
  answer.end(request.url === '/list' ? list : FLOOR);
});
await new Promise((done) => server.listen(0, '127.0.0.1', done));

const browser = await chromium.launch({ executablePath: process.env.LARIAT_CHROMIUM ?? '/usr/bin/chromium', args: FLAGS });
/** From the start of the navigation to the first row, in milliseconds, by the browser's own clock. */
async function first(url) {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.addInitScript(() => {
    new MutationObserver((_, observer) => {
      if (!document.querySelector('.line')) return;
      observer.disconnect();
      window.listed = performance.now();
    }).observe(document, { subtree: true, childList: true });
  });
  await page.goto(url);
  await page.waitForFunction(() => window.listed);
  const [ms, rows] = await page.evaluate(() => [window.listed, document.querySelectorAll('.line').length]);
  await context.close();
  return { ms, rows };
}

const told = { sessions: JSON.parse(list).sessions.length, rows: 0, ours: [], floor: [] };
for (let round = 0; round <= rounds; round++) {
  const { url } = JSON.parse(ask('web', '--no-open', '--json'));
  const [ours, floor] = [await first(url), await first(`http://127.0.0.1:${server.address().port}/`)];
  if (round === 0) continue; // the browser warms up
  told.rows = ours.rows;
  told.ours.push(ours.ms);
  told.floor.push(floor.ms);
}
await browser.close();
server.close();
console.log(JSON.stringify(told));
