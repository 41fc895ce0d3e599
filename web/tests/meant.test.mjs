// An answer is for what was shown when the question was asked, whatever has changed under it since.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { blameless, enter, json, lariat, lariatAsync, launch, rowOf, visitor } from './browser.mjs';

let browser;
before(async () => (browser = await launch()));
after(async () => browser.close());

async function guest() {
  const guest = await visitor(browser);
  await enter(guest);
  return guest;
}

test('a stop is for the session that was asked about, though another one is shown by now', async () => {
  const one = await guest();
  const { page } = one;
  const [alpha, beta] = [json('status', 'alpha'), json('status', 'beta')];
  await rowOf(page, 'beta').click();
  await page.getByRole('heading', { name: 'beta' }).waitFor();
  await page.goto(`${new URL(page.url()).origin}/#/s/${encodeURIComponent(alpha.id)}`);
  await page.getByRole('heading', { name: 'alpha' }).waitFor();
  const asked = [];
  page.on('request', (request) => request.method() === 'POST' && asked.push(decodeURIComponent(new URL(request.url()).pathname)));
  await page.getByRole('button', { name: 'Stop' }).click();
  const dialog = page.getByRole('dialog', { name: 'Stop alpha?' });
  await dialog.waitFor();
  await page.goBack();
  await page.locator('h1', { hasText: 'beta' }).waitFor();
  await dialog.getByRole('button', { name: 'Stop' }).click();
  await page.locator('.notice', { hasText: 'Stopped' }).waitFor();
  assert.deepEqual(asked, [`/v1/sessions/${alpha.id}/stop`]);
  assert.deepEqual([json('status', 'alpha').status, json('status', 'beta').live], ['stopped', true]);
  assert.equal(json('status', 'beta').pid, beta.pid);
  blameless(one);
});

test('a directory is given up that was asked about, though another one stands in its row by now', async () => {
  const one = await guest();
  const { page } = one;
  const [meant, other] = ['zeta', 'eta'].map((name) => `${process.env.HOME}/work/${name}`);
  const held = () => json('locks').locks.filter((l) => l.until).map((l) => l.path);
  lariat('lock', meant, '--for', '1h', '--reason', 'the one');
  await page.getByRole('link', { name: 'Locks' }).click();
  await page.locator('tr', { hasText: meant }).getByRole('button', { name: 'Unlock' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText(meant).waitFor();
  const at = () => page.evaluate((path) => [...document.querySelectorAll('tbody tr')].findIndex((r) => r.textContent.includes(path)), meant);
  const before = await at();
  lariat('lock', other, '--for', '1h', '--reason', 'another');
  await page.locator('tr', { hasText: other }).waitFor();
  assert.notEqual(await at(), before, 'another one stands where it stood');
  await dialog.getByRole('button', { name: 'Unlock' }).click();
  await page.locator('tr', { hasText: meant }).waitFor({ state: 'hidden' });
  assert.deepEqual(held(), [other]);
  blameless(one);
});

test('an approval is for the request that was shown, though it asks another thing by now', async () => {
  const one = await guest();
  const { page } = one;
  const made = (name) => existsSync(`${process.env.HOME}/work/gamma/${name}`);
  await page.getByRole('link', { name: 'Inbox' }).click();
  const gamma = page.getByRole('region', { name: 'gamma needs you' });
  await gamma.getByText('touch first').waitFor();
  // While the answer is on its way, somebody else has answered, and it asks for more.
  const late = {};
  late.promise = new Promise((resolve) => (late.resolve = resolve));
  await page.route('**/approve', async (route) => {
    await lariatAsync('deny', 'gamma');
    await lariatAsync('wait', 'gamma');
    await lariatAsync('send', 'gamma', 'run touch second');
    while (!(await lariatAsync('explain', 'gamma')).includes('  hook ')) await new Promise((go) => setTimeout(go, 20));
    late.resolve(route.request().postDataJSON());
    await route.continue();
  });
  await gamma.getByRole('button', { name: 'Approve' }).click();
  assert.match((await late.promise).expect, /touch first/);
  await page.locator('.notice.failed').waitFor();
  assert.match(json('status', 'gamma').reason, /touch second/, 'it still asks');
  assert.deepEqual([made('first'), made('second')], [false, false]);
  blameless(one);
});
