// What keys do. A view may take keys first; a field that is typed into takes all but Escape.
import { fleet } from './fleet.svelte';
import { groupOf } from './groups';
import { go, toSession, where } from './route.svelte';

type Taker = (key: string) => boolean;

const PLACES: Record<string, string> = {
  f: '#/', i: '#/inbox', l: '#/launch', r: '#/restore', t: '#/timeline', j: '#/journal', u: '#/usage', k: '#/locks',
  w: '#/worktrees', b: '#/fuses', d: '#/doctor',
};

class Keys {
  help = $state(false);
  #taker: Taker | null = null;
  #going = false;

  /** Gives a view the keys; call what is returned to give them back. */
  lend(taker: Taker): () => void {
    this.#taker = taker;
    return () => {
      if (this.#taker === taker) this.#taker = null;
    };
  }

  press(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = event.target as HTMLElement;
    if (document.querySelector('dialog[open]') || target.closest('.xterm')) return;
    if (target.closest('input:not([type=checkbox]), textarea, select')) {
      if (event.key === 'Escape') target.blur();
      return;
    }
    // What has the focus is pressed by Enter and Space itself.
    if ((event.key === 'Enter' || event.key === ' ') && target.closest('a, button, summary')) return;
    if (this.#take(event.key)) event.preventDefault();
  }

  #take(key: string): boolean {
    const going = this.#going;
    this.#going = false;
    const path = PLACES[key];
    if (going && path) {
      go(path);
      return true;
    }
    if (this.#taker?.(key)) return true;
    switch (key) {
      case '?':
        this.help = true;
        return true;
      case 'g':
        this.#going = true;
        return true;
      case 'n': {
        const waiting = fleet.sessions.filter((s) => groupOf(s) === 'needs');
        const next = waiting[(waiting.findIndex((s) => s.id === where.route.id) + 1) % (waiting.length || 1)];
        if (next) go(toSession(next.id));
        return true;
      }
      case 'Escape':
        if (where.route.view !== 'fleet') go('#/');
        return true;
      default:
        return false;
    }
  }
}

export const keys = new Keys();
