// What an agent writes does nothing: not in the list, not in the conversation, not in the terminal. The texts
// are made by `scenarios/page.rs`; each would set `window.pwned`, leave the page, or reach another site.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { blameless, enter, json, lariat, launch, visitor } from './browser.mjs';

let browser;
before(async () => (browser = await launch()));
after(async () => browser.close());

/** Nothing has run, nothing was made that could. */
async function isHarmless(page) {
  const found = await page.evaluate(() => ({
    pwned: window.pwned ?? null,
    made: [...document.querySelectorAll('main :is(script, img, iframe, object, embed, form[action], [onerror], [onload], [onclick], [srcdoc])')].map((e) => e.outerHTML.slice(0, 200)),
    ways: [...document.querySelectorAll('main a[href]')].map((a) => a.getAttribute('href')).filter((h) => !h.startsWith('#/')),
    hidden: /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/.test(document.body.textContent),
    wide: document.documentElement.scrollWidth > innerWidth,
    title: document.title,
  }));
  assert.deepEqual(found, { pwned: null, made: [], ways: [], hidden: false, wide: false, title: found.title });
  assert.match(found.title, /^(\(\d+\) )?lariat$/);
}

test('a hostile transcript is text', async () => {
  for (const width of [1280, 390]) {
    const guest = await visitor(browser, { width });
    const { page } = guest;
    await enter(guest);
    await page.locator('a.line', { hasText: '<script>' }).waitFor();
    await isHarmless(page);
    await page.locator('a.line', { hasText: '<script>' }).click();
    await page.getByText('the end of it').waitFor();
    const talk = page.locator('.talk');
    await talk.getByText('<img src=x onerror=window.pwned=1>').first().waitFor();
    await talk.getByText('\\u{202e}').first().waitFor();
    await talk.getByText('\\x1b[2J').first().waitFor();
    for (const summary of await talk.locator('summary').all()) await summary.click();
    // Whole, too: reading it takes no longer than it is long.
    const cut = talk.getByRole('button', { name: /^Show all/ });
    while ((await cut.count()) > 0) await cut.first().click();
    await talk.locator('pre', { hasText: '</pre><script>' }).first().waitFor();
    await isHarmless(page);
    // What leads to a script is no link; what leads elsewhere is shown before it is followed.
    assert.equal(await talk.getByRole('button', { name: 'click me' }).count(), 0);
    assert.equal(await talk.getByRole('button', { name: 'data' }).count(), 0);
    await talk.getByRole('button', { name: 'the docs' }).last().click();
    const dialog = page.getByRole('dialog', { name: 'Leave for another site?' });
    await dialog.getByText('https://example.invalid/docs?from=agent', { exact: true }).waitFor();
    const way = dialog.getByRole('link');
    assert.equal(await way.getAttribute('href'), 'https://example.invalid/docs?from=agent');
    assert.equal(await way.getAttribute('rel'), 'noopener noreferrer');
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    for (const tab of ['Why', 'Changes', 'Usage']) {
      await page.getByRole('navigation', { name: 'Of this session' }).getByRole('link', { name: tab }).click();
      await page.getByRole('region', { name: tab === 'Why' ? 'Evidence' : tab }).waitFor();
      await isHarmless(page);
    }
    await page.goto(`${new URL(page.url()).origin}/#/timeline`);
    await page.getByRole('region', { name: 'Who worked when' }).waitFor();
    await isHarmless(page);
    blameless(guest);
  }
});

test('a hostile terminal stream acts on its glass only', async () => {
  const guest = await visitor(browser);
  const { page } = guest;
  await enter(guest);
  const { id } = json('status', 'evil');
  await page.goto(`${new URL(page.url()).origin}/#/s/${encodeURIComponent(id)}/terminal`);
  await page.locator('.xterm-rows', { hasText: 'a scripted actor' }).waitFor();
  const link = (target, text) => `\x1b]8;;${target}\x1b\\${text}\x1b]8;;\x1b\\`;
  const stream = [
    '\x1b]0;pwned\x07', '\x1b]2;pwned\x07', '\x1b]52;c;cHduZWQ=\x07', '\x1b]9;pwned\x07', '\x1b]777;notify;pwned;pwned\x07',
    '\x1b[21t\x1b[8;5;5t\x1b[3;0;0t\x1b[5t', '\x1bP1$r0m\x1b\\', '\x1b]1337;File=inline=1:AAAA\x07', '\x07\x07\x07', '\x1b[?1003h\x1b[?1003l',
    '<script>window.pwned=1</script><img src=x onerror=window.pwned=1>\r\n',
    link('javascript:window.pwned=1', 'bad-link'), '\r\n', link('https://example.invalid/terminal', 'good-link'), '\r\n',
    'x'.repeat(100_000), '\r\n', '\x1b['.repeat(5000), 'm', '\u202e\u0301'.repeat(2000), '\r\n',
    '\x1b[2J\x1b[H', link('javascript:window.pwned=1', 'bad-link'), '\r\n', link('https://example.invalid/terminal', 'good-link'),
    '\r\nthe stream is over', '\r\n'.repeat(12), // the agent draws over what is just above its own lines
  ].join('');
  writeFileSync('hostile', stream);
  lariat('send', 'evil', `run cat ${process.cwd()}/hostile > /proc/$CLAUDE_PID/fd/1`);
  const screen = page.locator('.xterm-rows');
  await screen.getByText('the stream is over').waitFor();
  await screen.getByText('It said:').waitFor(); // it draws no more
  const over = async (name) => {
    // In one step: rows are drawn anew at any time.
    const handle = await page.waitForFunction((name) => {
      const place = [...document.querySelectorAll('.xterm-rows span')].findLast((s) => s.textContent === name)?.getBoundingClientRect();
      return place?.width ? { x: place.x + 20, y: place.y + place.height / 2 } : null;
    }, name);
    const { x, y } = await handle.jsonValue();
    await page.mouse.move(x, y);
    await page.mouse.move(x + 2, y);
  };
  await over('bad-link');
  await page.mouse.down();
  await page.mouse.up();
  await over('good-link');
  await page.locator('.xterm-cursor-pointer').waitFor();
  assert.equal(await page.getByRole('dialog').count(), 0, 'the first one leads nowhere');
  await page.mouse.down();
  await page.mouse.up();
  const dialog = page.getByRole('dialog', { name: 'Leave for another site?' });
  await dialog.getByText('https://example.invalid/terminal', { exact: true }).waitFor();
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  assert.equal(await page.evaluate(() => window.pwned ?? null), null);
  assert.match(await page.title(), /^(\(\d+\) )?lariat$/);
  // It is a terminal still.
  await page.locator('.xterm').click();
  await page.keyboard.type('hello there');
  await page.keyboard.press('Enter');
  await screen.getByText('heard 2 words').waitFor();
  blameless(guest);
});
