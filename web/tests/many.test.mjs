// Two thousand sessions: the page draws those in view, whatever a person does. How long it takes is printed
// and not judged; what is drawn is.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { blameless, enter, lariat, launch, visitor } from './browser.mjs';

const ALL = 2000;
/** A screen and what lies just above and below it. */
const MOST = 90;

let browser;
before(async () => (browser = await launch()));
after(async () => browser.close());

test('two thousand are listed, and only those in view are drawn', async () => {
  const guest = await visitor(browser);
  const { page } = guest;
  await page.addInitScript(() => {
    window.long = [];
    new PerformanceObserver((list) => window.long.push(...list.getEntries().map((e) => Math.round(e.duration)))).observe({ type: 'longtask' });
  });
  await enter(guest);
  await page.getByLabel('ended').check();
  await page.waitForFunction((all) => Number(document.querySelector('.rows').dataset.rows) >= all, ALL);
  const scrolled = await page.evaluate(async () => {
    const box = document.querySelector('.rows');
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    window.long.length = 0;
    const [drawn, gaps, frames] = [[], [], []];
    for (let i = 0; i <= 120; i++) {
      box.scrollTop = ((box.scrollHeight - box.clientHeight) * i) / 120;
      const before = performance.now();
      await frame();
      await frame();
      frames.push(performance.now() - before);
      drawn.push(box.querySelectorAll('.item').length);
      // No hole where a row should be.
      const view = box.getBoundingClientRect();
      const middle = document.elementFromPoint(view.left + 60, view.top + view.height / 2);
      if (!middle?.closest('.item')) gaps.push(i);
    }
    frames.sort((a, b) => a - b);
    return { most: Math.max(...drawn), least: Math.min(...drawn), gaps, long: window.long, median: frames[60], worst: frames.at(-1) };
  });
  console.log(`drawn at most ${scrolled.most}; two frames took ${scrolled.median.toFixed(1)} ms in the median, ${scrolled.worst.toFixed(1)} ms at worst; long tasks ${JSON.stringify(scrolled.long)}`);
  assert.ok(scrolled.most <= MOST && scrolled.least >= 10, `${scrolled.least} to ${scrolled.most} rows were drawn`);
  assert.deepEqual(scrolled.gaps, []);
  // The last one can be reached by keys.
  await page.evaluate(() => (document.querySelector('.rows').scrollTop = 0));
  await page.keyboard.press('j');
  await page.locator('a.line.chosen').waitFor();
  blameless(guest);
});

test('a change draws its own row anew, and no other', async () => {
  const guest = await visitor(browser);
  const { page } = guest;
  await enter(guest);
  await page.getByLabel('ended').check();
  await page.waitForFunction((all) => Number(document.querySelector('.rows').dataset.rows) >= all, ALL);
  await page.locator('a.line', { hasText: 'busy-one' }).waitFor();
  await page.evaluate(() => {
    window.touched = new Set();
    const element = (node) => (node.nodeType === Node.ELEMENT_NODE ? node : node.parentElement);
    new MutationObserver((changes) => {
      for (const { addedNodes, target } of changes) {
        // Ages move by themselves.
        const within = [target, ...addedNodes].map(element).filter((e) => e && !e.closest('.when'));
        const lines = within.map((e) => e.closest('a.line'));
        for (const node of addedNodes) lines.push(...(node.querySelectorAll?.('a.line') ?? []));
        for (const line of lines) if (line) window.touched.add(line.querySelector('.name').lastChild.textContent);
      }
    }).observe(document.querySelector('.rows'), { subtree: true, childList: true, characterData: true });
  });
  lariat('send', 'busy-one', 'think 600');
  await page.locator('a.line', { has: page.locator('.of-working') }).filter({ hasText: 'busy-one' }).waitFor();
  // And once more when its age has moved on.
  const age = () => document.querySelector('.when').textContent;
  const first = await page.evaluate(age);
  await page.waitForFunction((first) => document.querySelector('.when').textContent !== first, first);
  const touched = await page.evaluate(() => [...window.touched]);
  assert.deepEqual(touched.filter((name) => name !== 'busy-one'), []);
  await page.getByLabel('Search sessions').fill('number 1234 of');
  await page.waitForFunction(() => document.querySelector('.rows').dataset.rows === '1');
  await page.locator('a.line', { hasText: 'number 1234 of' }).waitFor();
  blameless(guest);
});
