// How a person gets in, and how this page knows the daemon again.
//
// The one-time secret of `lariat web` is taken out of the address and traded for two things: a pass, which goes
// with every request and is kept for this tab alone (a cookie would go to every port of this machine), and a key,
// which stays in memory and is never sent. A pass is worth nothing once the daemon that gave it has gone; so
// whoever takes its port hears nothing of use. After that, nothing is said to anybody who has not proven by the
// key to be the daemon: see `crates/daemon/src/http/pass.rs`.

const KEY = 'lariat.pass';

export type Door = 'entering' | 'shut' | 'open';

/** Said of whoever answers where the daemon did, and cannot prove to be it. */
export const STRANGER =
  'whoever answers there now is not the daemon that this page knows, and was told nothing; `lariat web` lets you in anew';

interface Admitted { token?: string; page?: string; key?: string; run?: string }

const bytes = (text: string) => new TextEncoder().encode(text);
const hex = (data: ArrayBuffer | Uint8Array) => Array.from(new Uint8Array(data), (b) => b.toString(16).padStart(2, '0')).join('');

function unhex(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

/** The pass of a page, for one run of the daemon on this port. */
async function makePass(key: CryptoKey, page: string, run: string): Promise<string> {
  return `page.${page}.${hex(await crypto.subtle.sign('HMAC', key, bytes(`page\n${location.port}\n${run}`)))}`;
}

/** A number that nobody used before. */
export function nonce(): string {
  return hex(crypto.getRandomValues(new Uint8Array(16)));
}

class Entrance {
  door = $state<Door>('entering');
  /** Why it is shut, if that is worth telling. */
  why = $state('');
  /** The pass. */
  token = '';
  /** Whether who answers is the daemon, as far as can be known: until the line is lost, and again once it is proven. */
  trusted = true;
  /** Counts the times that the line was lost: an answer of before is not one of now. */
  turn = 0;
  #page = '';
  #run = '';
  #key: CryptoKey | null = null;
  #asked: Promise<void> = Promise.resolve();

  open(token: string): void {
    this.token = token;
    sessionStorage.setItem(KEY, token);
    this.trusted = true;
    this.door = 'open';
  }

  shut(why: string): void {
    this.token = '';
    sessionStorage.removeItem(KEY);
    this.why = why;
    this.door = 'shut';
  }

  /** Whether this page could know the daemon again. */
  get keyed(): boolean {
    return this.#key !== null;
  }

  /** The line is lost: whoever answers from now on may be anybody. */
  lost(): void {
    this.trusted = false;
    this.turn += 1;
  }

  /** Takes what the daemon gave: its pass. */
  async admit(told: Admitted): Promise<string> {
    if (!told.page || !told.key || !told.run) throw new Error('not let in');
    const key = await crypto.subtle.importKey('raw', bytes(told.key), { name: 'HMAC', hash: 'SHA-256' }, false, ['sign', 'verify']);
    const pass = await makePass(key, told.page, told.run);
    if (pass !== told.token) throw new Error('not let in');
    [this.#page, this.#run, this.#key] = [told.page, told.run, key];
    return pass;
  }

  /** Comes back with the pass of this tab, after a reload, and asks for the key again. */
  again(pass: string): void {
    this.open(pass);
    const headers = { Authorization: `Bearer ${pass}` };
    this.#asked = (async () => {
      try {
        const answer = await fetch('/v1/page', { method: 'POST', headers, cache: 'no-store', redirect: 'error' });
        if (answer.status === 401) return this.shut('The token of this tab is no longer known.');
        // Only who gave the pass has the key that it was made with.
        if (answer.ok && (await this.admit((await answer.json()) as Admitted)) !== pass) this.#key = null;
      } catch {
        // The line tells that nobody is there.
      }
    })();
  }

  /** Makes sure that who answers is the daemon, and takes its pass; `false` if it could not prove that. */
  async meet(signal: AbortSignal): Promise<boolean> {
    await this.#asked;
    if (this.trusted) return true;
    if (!this.#key) {
      this.shut('The daemon went away, and this tab cannot know it again.');
      return false;
    }
    const number = nonce();
    const answer = await fetch('/v1/meet', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ page: this.#page, nonce: number }),
      signal,
      cache: 'no-store',
      redirect: 'error',
    });
    const told = (await answer.json().catch(() => ({}))) as { run?: unknown; proof?: unknown };
    if (!answer.ok || typeof told.run !== 'string' || typeof told.proof !== 'string') return false;
    this.#run = told.run;
    if (!(await this.proven(number, told.proof))) return false;
    this.token = await makePass(this.#key, this.#page, told.run);
    sessionStorage.setItem(KEY, this.token);
    return true;
  }

  /** Whether this proves that who says it is the daemon, on this port and in this run. */
  async proven(number: string, proof: string): Promise<boolean> {
    if (!this.#key) return false;
    const text = bytes(`daemon\n${location.port}\n${this.#run}\n${number}`);
    return crypto.subtle.verify('HMAC', this.#key, unhex(proof), text);
  }
}

export const entrance = new Entrance();

/** Takes the secret, if there is one, or the pass that this tab has. */
export async function enter(): Promise<void> {
  // By that name somebody else could be reached than the daemon, on the other loopback address.
  if (location.hostname !== '127.0.0.1') return location.replace(`http://127.0.0.1:${location.port}/${location.hash}`);
  const once = /^#once=([A-Za-z0-9_-]+)$/.exec(location.hash)?.[1];
  if (once) history.replaceState(null, '', '/');
  const known = sessionStorage.getItem(KEY);
  if (!once) return known ? entrance.again(known) : entrance.shut('');
  try {
    const answer = await fetch('/v1/enter', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ once }),
    });
    if (answer.ok) return entrance.open(await entrance.admit((await answer.json()) as Admitted));
    // Somebody may have reloaded a page that was let in before.
    if (known) return entrance.again(known);
    entrance.shut('That address was used before, or is too old.');
  } catch {
    entrance.shut('The daemon does not answer.');
  }
}

// A fresh address pasted into an open tab is an entrance too.
addEventListener('hashchange', () => {
  if (location.hash.startsWith('#once=')) void enter();
});
