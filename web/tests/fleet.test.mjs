// A person at work: sees the fleet, watches it change, answers, launches, types, stops, restores. The sandbox
// has a session of each kind when this begins; see `scenarios/page.rs`.
import assert from 'node:assert/strict';
import { existsSync, unlinkSync, writeFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { blameless, enter, isIn, json, lariat, lariatAsync, launch, rowOf, visitor } from './browser.mjs';

let browser;
before(async () => (browser = await launch()));
after(async () => browser.close());

async function guest(options) {
  const guest = await visitor(browser, options);
  await enter(guest);
  return guest;
}

test('the fleet is grouped as in the terminal, and the address keeps no secret', async () => {
  const one = await guest();
  const { page } = one;
  assert.equal(new URL(page.url()).hash, '');
  for (const [name, group] of [['release', 'Needs you'], ['orders', 'Needs you'], ['parser', 'Working'], ['triage', 'Idle'], ['migration', 'Cut off']]) {
    await isIn(page, name, group);
  }
  const header = lariat('ls').split('\n')[0];
  await page.waitForFunction((header) => document.querySelector('[data-counts]').textContent.startsWith(header), header);
  assert.equal(await rowOf(page, 'notes').count(), 0);
  await page.getByLabel('ended').check();
  await isIn(page, 'notes', 'Ended');
  await page.getByLabel('Search sessions').fill('permission tag');
  await page.waitForFunction(() => document.querySelector('.rows').dataset.rows === '1');
  await rowOf(page, 'release').waitFor();
  blameless(one);
});

test('keys go through the list', async () => {
  const one = await guest();
  const { page } = one;
  await isIn(page, 'release', 'Needs you');
  await page.keyboard.press('j');
  const first = await page.locator('a.line.chosen').getAttribute('data-id');
  await page.keyboard.press('j');
  await page.waitForFunction((first) => document.querySelector('a.line.chosen').dataset.id !== first, first);
  await page.keyboard.press('k');
  await page.waitForFunction((first) => document.querySelector('a.line.chosen').dataset.id === first, first);
  await page.keyboard.press('/');
  await page.waitForFunction(() => document.activeElement.type === 'search');
  await page.keyboard.type('triage');
  await page.waitForFunction(() => document.querySelector('.rows').dataset.rows === '1');
  await page.keyboard.press('Escape');
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'triage' }).waitFor();
  await page.keyboard.press('Escape');
  await page.locator('.rows').waitFor();
  await page.keyboard.press('?');
  await page.getByRole('dialog', { name: 'Keys' }).waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog', { name: 'Keys' }).waitFor({ state: 'hidden' });
  blameless(one);
});

test('what a session says is shown, and what changes arrives by itself in two browsers', async () => {
  const [one, other] = [await guest(), await guest()];
  await rowOf(one.page, 'triage').click();
  await one.page.getByText('Four themes: import errors (9)').waitFor();
  await isIn(other.page, 'triage', 'Idle');
  // From here on it can know by events only.
  await other.page.route('**/v1/sessions*', (route) => route.abort());
  await one.page.getByLabel('Say something to triage').fill('think 600');
  await one.page.getByRole('button', { name: 'Send' }).click();
  // Nobody has touched the other one.
  await isIn(other.page, 'triage', 'Working');
  await one.page.getByRole('article').getByText('think 600').waitFor();
  await one.page.getByRole('link', { name: 'Why' }).click();
  await one.page.getByRole('heading', { name: 'Decided by' }).waitFor();
  await one.page.locator('td', { hasText: /^registry$/ }).first().waitFor();
  [one, other].forEach(blameless);
});

test('a permission is approved and a question answered in the inbox', async () => {
  const one = await guest();
  const { page } = one;
  await page.getByRole('link', { name: 'Inbox' }).click();
  const release = page.getByRole('region', { name: 'release needs you' });
  await release.getByText('Bash git tag v1.4.0').waitFor();
  assert.equal(existsSync(`${process.env.HOME}/work/release/.git/refs/tags/v1.4.0`), false);
  await release.getByRole('button', { name: 'Approve' }).click();
  await release.waitFor({ state: 'hidden' });
  lariat('wait', 'release');
  assert.equal(existsSync(`${process.env.HOME}/work/release/.git/refs/tags/v1.4.0`), true);
  const orders = page.getByRole('region', { name: 'orders needs you' });
  await orders.getByRole('button', { name: 'Keep it' }).click();
  await orders.waitFor({ state: 'hidden' });
  await page.getByText('Nobody needs you.').waitFor();
  await page.getByRole('link', { name: 'Fleet' }).click();
  await isIn(page, 'orders', 'Idle');
  await rowOf(page, 'orders').click();
  await page.getByText('The routes are changed.').waitFor();
  blameless(one);
});

test('an agent is launched, typed to in its terminal, denied something, and stopped', async () => {
  const one = await guest();
  const { page } = one;
  await page.getByRole('link', { name: 'Launch' }).first().click();
  await page.getByLabel('Directory').fill(`${process.env.HOME}/work/mine`);
  await page.getByLabel('Name').fill('mine');
  await page.getByRole('button', { name: 'Launch' }).click();
  await page.getByRole('heading', { name: 'mine' }).waitFor();
  await page.getByRole('link', { name: 'Terminal' }).click();
  await page.locator('[data-terminal]', { hasText: 'connected' }).waitFor();
  await page.locator('.xterm-rows', { hasText: 'a scripted actor' }).waitFor();
  await page.locator('.xterm').click();
  await page.keyboard.type('run touch typed-here');
  await page.locator('.xterm-rows', { hasText: 'run touch typed-here' }).waitFor();
  await page.keyboard.press('Enter');
  await page.locator('.xterm-rows', { hasText: 'Do you want to proceed?' }).waitFor();
  await page.getByRole('link', { name: 'Conversation' }).click();
  const ask = page.getByRole('region', { name: 'mine needs you' });
  await ask.getByLabel('Why not').fill('not in this house');
  await ask.getByRole('button', { name: 'Deny' }).click();
  await page.getByText('Then I leave it (not in this house).').waitFor();
  assert.equal(existsSync(`${process.env.HOME}/work/mine/typed-here`), false);

  const pid = json('status', 'mine').pid;
  const done = [];
  page.on('request', (request) => request.method() === 'POST' && done.push(new URL(request.url()).pathname.split('/').at(-1)));
  await page.getByRole('button', { name: 'Stop' }).click();
  const dialog = page.getByRole('dialog', { name: 'Stop mine?' });
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await dialog.waitFor({ state: 'hidden' });
  assert.deepEqual(done, [], 'it was asked, and answered no');
  await page.getByRole('button', { name: 'Stop' }).click();
  await dialog.getByRole('button', { name: 'Stop' }).click();
  await page.locator('.head .status', { hasText: 'stopped' }).waitFor();
  assert.deepEqual(done, ['stop']);
  assert.equal(existsSync(`/proc/${pid}`), false);
  await page.getByRole('link', { name: 'Journal' }).click();
  await page.locator('td', { hasText: /^stop$/ }).first().waitFor();
  blameless(one);
});

test('a directory is held and given up', async () => {
  const one = await guest();
  const { page } = one;
  await page.getByRole('link', { name: 'Locks' }).click();
  await page.getByLabel('Directory').fill(`${process.env.HOME}/work/proj`);
  await page.getByLabel('What for').fill('by hand');
  await page.getByRole('button', { name: 'Lock' }).click();
  const row = page.locator('tr', { hasText: 'by hand' });
  await row.waitFor();
  await row.getByRole('button', { name: 'Unlock' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Unlock' }).click();
  await row.waitFor({ state: 'hidden' });
  assert.equal(json('locks').locks.some((l) => l.reason === 'by hand'), false);
  blameless(one);
});

test('a fuse is set, given more time, and taken away', async () => {
  const one = await guest();
  const { page } = one;
  const { id, handle } = json('status', 'parser');
  await page.getByRole('link', { name: 'Fuses' }).click();
  await page.getByText('No fuse is set.').waitFor();
  await page.getByLabel('On (a session').fill(handle);
  await page.getByLabel('How much').fill('2h');
  await page.getByRole('button', { name: 'Set' }).click();
  const row = page.locator('tr', { hasText: 'parser' });
  await row.getByText('0% burnt').waitFor();
  const [set] = json('fuse', 'ls').fuses;
  assert.deepEqual([set.on, set.then], [{ session: id }, 'stop']);
  await row.getByRole('button', { name: '10 minutes more' }).click();
  await page.locator('.notice', { hasText: 'Ten minutes more' }).waitFor();
  assert.equal(Date.parse(json('fuse', 'ls').fuses[0].limit.until) - Date.parse(set.limit.until), 600_000);
  await row.getByRole('button', { name: 'Take away' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Take away' }).click();
  await page.getByText('No fuse is set.').waitFor();
  assert.deepEqual(json('fuse', 'ls').fuses, []);
  blameless(one);
});

test('a worktree is saved and removed, and the machine is examined', async () => {
  const one = await guest();
  const { page } = one;
  const launched = json('launch', 'claude', '--name', 'apart', '--worktree', '--cwd', `${process.env.HOME}/work/mine`, '-p', 'hello');
  lariat('wait', 'apart');
  await page.getByRole('link', { name: 'Worktrees', exact: true }).click();
  const row = page.locator('tr', { hasText: launched.handle });
  await row.waitFor();
  assert.ok(await row.getByRole('button', { name: 'Remove' }).isDisabled(), 'somebody is in it');
  const made = `${launched.worktree.path ?? launched.worktree}/made`;
  writeFileSync(made, 'by hand');
  await row.getByRole('button', { name: 'Save' }).click();
  await row.getByText('saved as').waitFor();
  lariat('stop', 'apart');
  assert.equal(existsSync(made), true);
  unlinkSync(made);
  await page.getByRole('link', { name: 'Fleet', exact: true }).click();
  await page.getByRole('link', { name: 'Worktrees', exact: true }).click();
  await row.locator('button:enabled', { hasText: 'Remove' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click();
  const said = page.locator('.notice', { hasNotText: 'Saved' });
  await said.waitFor();
  assert.match(await said.innerText(), /Removed/);
  assert.equal(existsSync(launched.worktree.path ?? launched.worktree), false);
  await page.getByRole('link', { name: 'Doctor' }).click();
  const checks = json('doctor').checks;
  await page.waitForFunction((n) => document.querySelectorAll('tbody tr').length === n, checks.length);
  blameless(one);
});

test('files that were changed are shown with their differences', async () => {
  const one = await guest();
  const { page } = one;
  await isIn(page, 'parser', 'Working');
  await rowOf(page, 'parser').click();
  await page.getByRole('link', { name: 'Changes' }).click();
  await page.locator('td', { hasText: 'README.md' }).waitFor();
  await page.locator('.patch .add', { hasText: 'and trailing commas' }).waitFor();
  await page.getByRole('link', { name: 'Usage' }).last().click();
  const chart = page.getByRole('img', { name: /^Tokens: / });
  await chart.waitFor();
  // As its store tells it, from before this page was there: a step for each answer, up to the sum.
  const { steps, total } = json('usage', json('status', 'parser').id);
  const all = (t) => t.input + t.output + t.cache_read + t.cache_write;
  assert.ok(steps.length > 0 && all(total.tokens) > 0);
  const drawn = await chart.locator('path.curve:not(.unseen)').getAttribute('d');
  assert.equal(drawn.match(/V/g).length, steps.length, drawn);
  assert.equal(await chart.locator('path.curve.unseen').getAttribute('d'), '');
  await page.getByText(`${total.tokens.output} out`).waitFor();
  await page.getByRole('img', { name: /^Cost: / }).waitFor();
  blameless(one);
});

test('what was cut off is restored', async () => {
  const one = await guest();
  const { page } = one;
  await page.getByRole('link', { name: 'Restore', exact: true }).click();
  await page.locator('tr', { hasText: 'migration' }).getByText('goes on with its conversation').waitFor();
  await page.getByRole('button', { name: 'Restore 1' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Restore' }).click();
  await page.getByText('1 of 1 brought back').waitFor();
  await page.getByText('Nothing was cut off.').waitFor();
  assert.equal(json('status', 'migration').live, true);
  await page.getByRole('link', { name: 'Fleet' }).click();
  await isIn(page, 'migration', 'Idle');
  await page.getByRole('link', { name: 'Timeline' }).click();
  await page.getByRole('link', { name: /^migration, / }).waitFor();
  blameless(one);
});

test('the daemon is killed and started again under an open page', async () => {
  const one = await guest();
  const { page } = one;
  await isIn(page, 'migration', 'Idle');
  const { pid, http } = json('daemon', 'status');
  const port = http.split(':').at(-1);
  process.kill(pid, 'SIGKILL');
  await page.getByRole('alert').getByText('No word from the daemon').waitFor();
  // What happens meanwhile is there afterwards.
  lariat('send', 'migration', 'think 600');
  await lariatAsync('daemon', 'start', '--http', port);
  await page.locator('[data-line=live]').waitFor();
  await page.getByRole('alert').waitFor({ state: 'hidden' });
  await isIn(page, 'migration', 'Working');
  // And events come again.
  lariat('stop', 'migration');
  await rowOf(page, 'migration').waitFor({ state: 'hidden' });
  blameless(one);
});
