// How a person gets in: the one-time secret of `lariat web` is taken out of the address, traded for the token,
// and the token kept for this tab alone. (A cookie would go to every port of this machine.)

const KEY = 'lariat.token';

export type Door = 'entering' | 'shut' | 'open';

class Entrance {
  door = $state<Door>('entering');
  /** Why it is shut, if that is worth telling. */
  why = $state('');
  token = '';

  open(token: string): void {
    this.token = token;
    sessionStorage.setItem(KEY, token);
    this.door = 'open';
  }

  shut(why: string): void {
    this.token = '';
    sessionStorage.removeItem(KEY);
    this.why = why;
    this.door = 'shut';
  }
}

export const entrance = new Entrance();

/** Takes the secret, if there is one, or the token that this tab has. */
export async function enter(): Promise<void> {
  const once = /^#once=([A-Za-z0-9_-]+)$/.exec(location.hash)?.[1];
  if (once) history.replaceState(null, '', '/');
  const known = sessionStorage.getItem(KEY);
  if (!once) return known ? entrance.open(known) : entrance.shut('');
  try {
    const answer = await fetch('/v1/enter', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ once }),
    });
    const said = (await answer.json()) as { token?: string };
    if (answer.ok && said.token) return entrance.open(said.token);
    // Somebody may have reloaded a page that was let in before.
    if (known) return entrance.open(known);
    entrance.shut('That address was used before, or is too old.');
  } catch {
    entrance.shut('The daemon does not answer.');
  }
}

// A fresh address pasted into an open tab is an entrance too.
addEventListener('hashchange', () => {
  if (location.hash.startsWith('#once=')) void enter();
});
