// Every view, light and dark: nothing that axe calls serious; on a phone nothing that scrolls sideways. With
// LARIAT_PICTURES set to a folder, the pictures of the documents are taken into it.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { blameless, enter, isIn, json, launch, rowOf, serious, visitor } from './browser.mjs';

let browser;
before(async () => (browser = await launch()));
after(async () => browser.close());

/** The views, and what is there once they are. */
function views() {
  const session = (name, tab) => `#/s/${encodeURIComponent(json('status', name).id)}${tab}`;
  return [
    ['#/', (p) => p.locator('a.line').first()],
    [session('triage', ''), (p) => p.getByText('Four themes')],
    [session('release', ''), (p) => p.getByRole('region', { name: 'release needs you' })],
    [session('triage', '/terminal'), (p) => p.locator('.xterm-rows', { hasText: 'Four themes' })],
    [session('triage', '/why'), (p) => p.getByRole('heading', { name: 'Decided by' })],
    [session('parser', '/changes'), (p) => p.locator('.patch .add').first()],
    [session('triage', '/usage'), (p) => p.getByRole('img', { name: /^Tokens: / })],
    ['#/inbox', (p) => p.getByRole('button', { name: 'Approve' })],
    ['#/launch', (p) => p.getByRole('button', { name: 'Launch' })],
    ['#/restore', (p) => p.getByRole('button', { name: 'Restore 1' })],
    ['#/locks', (p) => p.locator('tbody tr').first()],
    ['#/timeline', (p) => p.getByRole('link', { name: /^migration, / })],
    ['#/usage', (p) => p.locator('tbody tr').first()],
    ['#/journal', (p) => p.locator('tbody tr').first()],
    ['#/worktrees', (p) => p.getByText('No worktrees.')],
    ['#/fuses', (p) => p.getByText('No fuse is set.')],
    ['#/doctor', (p) => p.locator('tbody tr').first()],
  ];
}

for (const dark of [false, true]) {
  test(`axe finds nothing serious, ${dark ? 'dark' : 'light'}`, async () => {
    const guest = await visitor(browser, { dark });
    const { page } = guest;
    await enter(guest);
    for (const [hash, ready] of views()) {
      await page.goto(`${new URL(page.url()).origin}/${hash}`);
      await ready(page).waitFor();
      assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), dark ? 'dark' : 'light');
      assert.deepEqual(await serious(page), [], hash);
    }
    await page.keyboard.press('?');
    await page.getByRole('dialog', { name: 'Keys' }).waitFor();
    assert.deepEqual(await serious(page), [], 'keys');
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: /colours$/ }).click();
    await page.waitForFunction((theme) => document.documentElement.dataset.theme === theme, dark ? 'light' : 'dark');
    blameless(guest);
    const stranger = await visitor(browser, { dark });
    await stranger.page.goto(new URL(page.url()).origin);
    await stranger.page.getByText('lariat web').waitFor();
    assert.deepEqual(await serious(stranger.page), [], 'shut');
  });
}

test('nothing scrolls sideways on a phone', async () => {
  const guest = await visitor(browser, { width: 390, height: 780 });
  const { page } = guest;
  await enter(guest);
  for (const [hash, ready] of views()) {
    await page.goto(`${new URL(page.url()).origin}/${hash}`);
    await ready(page).waitFor();
    const [wide, most] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(wide <= most, `${hash} is ${wide} wide`);
    // Nor does anything in it, but for what is meant to: code, tables, charts, a terminal.
    const past = await page.evaluate(() => [...document.querySelectorAll('main, main *')].filter((e) => {
      const scrolls = ['auto', 'scroll'].includes(getComputedStyle(e).overflowX) && e.scrollWidth > e.clientWidth + 1;
      return scrolls && !e.closest('.scroll, pre, .prose table, .patch, .tabs, .glass');
    }).map((e) => e.className));
    assert.deepEqual(past, [], `${hash} scrolls sideways in itself`);
  }
  blameless(guest);
});

test('pictures for the documents', { skip: !process.env.LARIAT_PICTURES }, async () => {
  for (const dark of [false, true]) {
    const guest = await visitor(browser, { dark, width: 1120, height: dark ? 640 : 440 });
    const { page } = guest;
    await enter(guest);
    const picture = (name) => page.screenshot({ path: `${process.env.LARIAT_PICTURES}/page-${name}.png` });
    await isIn(page, 'release', 'Needs you');
    if (!dark) {
      await page.keyboard.press('j');
      await picture('fleet');
      continue;
    }
    await rowOf(page, 'release').click();
    await page.getByText('The tests pass').waitFor();
    await page.locator('summary').first().click();
    await picture('session');
  }
});
