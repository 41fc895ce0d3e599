// Who gets in, and who does not.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { address, blameless, enter, launch, lariat, origin, say, visitor } from './browser.mjs';

let browser;
let port;
before(async () => {
  browser = await launch();
  port = Number(new URL(origin()).port);
});
after(async () => browser.close());

test('without a token there is nothing to see but how to get one', async () => {
  const guest = await visitor(browser);
  const asked = [];
  guest.page.on('request', (request) => asked.push(new URL(request.url()).pathname));
  await guest.page.goto(`http://127.0.0.1:${port}/`);
  await guest.page.getByText('lariat web').waitFor();
  assert.equal(await guest.page.getByRole('navigation').count(), 0);
  assert.ok(asked.every((path) => path === '/' || path.startsWith('/assets/')), asked.join());
  blameless(guest);
});

test('an address works once, for the tab that had it', async () => {
  const url = address();
  const [first, second] = [await visitor(browser), await visitor(browser)];
  await first.page.goto(url);
  await first.page.locator('[data-line=live]').waitFor();
  assert.equal(first.page.url(), `http://127.0.0.1:${port}/`);
  await first.page.reload();
  await first.page.locator('[data-line=live]').waitFor();
  assert.deepEqual(await first.context.cookies(), []);
  await second.page.goto(url);
  await second.page.getByRole('alert').getByText('was used before').waitFor();
  blameless(first);
});

test('a token that is not known shuts the page', async () => {
  const guest = await visitor(browser);
  await enter(guest);
  await guest.page.evaluate(() => sessionStorage.setItem('lariat.pass', 'x'.repeat(64)));
  await guest.page.reload();
  await guest.page.getByText('no longer known').waitFor();
  assert.equal(await guest.page.evaluate(() => sessionStorage.getItem('lariat.pass')), null);
});

test('a wrong token, another host and another origin are refused', async () => {
  const token = lariat('daemon', 'token').trim();
  const ask = async (headers, path = '/v1/sessions') => {
    const text = Object.entries({ Host: `127.0.0.1:${port}`, Authorization: `Bearer ${token}`, Connection: 'close', ...headers });
    return (await say(port, `GET ${path} HTTP/1.1\r\n${text.map(([n, v]) => `${n}: ${v}\r\n`).join('')}\r\n`)).split(' ')[1];
  };
  assert.equal(await ask({}), '200');
  assert.equal(await ask({ Authorization: `Bearer ${'0'.repeat(64)}` }), '401');
  assert.equal(await ask({ Host: `evil.example:${port}` }), '421');
  assert.equal(await ask({ Origin: 'http://evil.example' }), '403');
  assert.equal(await ask({ Host: `evil.example:${port}` }, '/'), '421', 'not even the page');
  const terminal = { Upgrade: 'websocket', Connection: 'Upgrade', 'Sec-WebSocket-Version': '13', 'Sec-WebSocket-Key': 'AAAAAAAAAAAAAAAAAAAAAA==' };
  assert.equal(await ask({ ...terminal, Authorization: 'Bearer x', Origin: `http://127.0.0.1:${port}` }, '/v1/sessions/x/terminal'), '401');
  assert.equal(await ask({ ...terminal, Origin: 'http://evil.example' }, '/v1/sessions/x/terminal'), '403');
});

test('a page of another origin gets nothing, whatever it tries', async () => {
  const token = lariat('daemon', 'token').trim();
  const guest = await visitor(browser);
  const elsewhere = `http://localhost:${port + 1 > 65535 ? port - 1 : port + 1}/`;
  await guest.page.route(elsewhere, (route) => route.fulfill({ body: '<!doctype html><title>elsewhere</title>', contentType: 'text/html' }));
  await guest.page.goto(elsewhere);
  const got = await guest.page.evaluate(async ([port, token]) => {
    const tries = [];
    for (const headers of [{}, { Authorization: `Bearer ${token}` }]) {
      tries.push(await fetch(`http://127.0.0.1:${port}/v1/sessions`, { headers }).then((r) => `read ${r.status}`, () => 'refused'));
    }
    tries.push(await new Promise((done) => {
      const socket = new WebSocket(`ws://127.0.0.1:${port}/v1/sessions/x/terminal`, ['lariat.terminal.v1', `lariat.token.${token}`]);
      socket.onopen = () => done('opened');
      socket.onclose = () => done('refused');
    }));
    return tries;
  }, [port, token]);
  assert.deepEqual(got, ['refused', 'refused', 'refused']);
});

test('the page may not be framed, and holds no script but its files', async () => {
  const answer = await say(port, `GET / HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nConnection: close\r\n\r\n`);
  const policy = /Content-Security-Policy: (.*)\r\n/i.exec(answer)[1];
  assert.match(policy, /default-src 'none'; script-src 'self';/);
  assert.match(policy, /frame-ancestors 'none'/);
  assert.doesNotMatch(policy, /script-src[^;]*unsafe/);
});
