// All sessions as the daemon last told them. Events change single rows at once; every event is also a hint
// that wakes a fresh look, because what an event says is not all that may have changed. Nothing is guessed
// here, and nothing outlives the tab.
import { get } from './api';
import { listen, type Line } from './events';
import { GROUPS, groupOf, tokens, type Group } from './groups';
import type { Listing, Session, Told, Unbound, Warning } from './types';

/** So soon after an event a fresh look is taken; a burst of events is one look. */
const SOON = 120;
/** Ages, tokens and costs move without an event. */
const QUIET = 10_000;

export interface Sample { at: number; tokens: number; cost: number | null }

class Fleet {
  sessions = $state.raw<Session[]>([]);
  unbound = $state.raw<Unbound[]>([]);
  warnings = $state.raw<Warning[]>([]);
  hidden = $state(0);
  line = $state<Line>('connecting');
  why = $state('');
  /** Whether there was a first answer. */
  loaded = $state(false);
  /** Whether ended sessions are wanted. */
  ended = $state(false);
  now = $state(Date.now());
  /** Counts every event about a session, for whoever shows it. */
  stirred = $state.raw<Record<string, number>>({});
  counts = $derived.by(() => {
    const counts: Record<Group, number> = { needs: 0, working: 0, idle: 0, unknown: 0, cut: 0, ended: 0 };
    for (const session of this.sessions) counts[groupOf(session)] += 1;
    if (!this.ended) counts.ended += this.hidden;
    return counts;
  });
  byId = $derived(new Map(this.sessions.map((s) => [s.id, s])));
  /** What was seen of each session's tokens while this page was open. */
  readonly samples = new Map<string, Sample[]>();

  #timer = 0;
  #busy = false;
  #again = false;
  #whole = false;
  #past: Session[] = [];

  /** Begins; call what it returns to end. */
  start(): () => void {
    const stop = listen({
      told: (event) => this.told(event),
      line: (line, why) => {
        this.line = line;
        this.why = why;
      },
    });
    const clock = window.setInterval(() => (this.now = Date.now()), 1000);
    const quiet = window.setInterval(() => document.visibilityState === 'visible' && this.look(), QUIET);
    const seen = () => document.visibilityState === 'visible' && this.look();
    document.addEventListener('visibilitychange', seen);
    this.look(0, true);
    return () => {
      stop();
      clearInterval(clock);
      clearInterval(quiet);
      document.removeEventListener('visibilitychange', seen);
    };
  }

  told(event: Told): void {
    if (event.event === 'reset') {
      if (event.listing && !this.ended) this.take(event.listing, false);
      return this.look(SOON, true);
    }
    const session = event.session;
    if (session) {
      const at = this.sessions.findIndex((s) => s.id === session.id);
      this.sessions = at < 0 ? [...this.sessions, session] : this.sessions.with(at, session);
      this.stirred = { ...this.stirred, [session.id]: (this.stirred[session.id] ?? 0) + 1 };
      this.sample([session]);
    }
    this.look(SOON, event.event === 'session.ended');
  }

  /** Shows ended sessions too, or no longer. */
  show(ended: boolean): void {
    this.ended = ended;
    this.look(0, true);
  }

  /** A fresh look, soon; `whole` asks for ended sessions again, if they are wanted. */
  look(soon = SOON, whole = false): void {
    this.#whole ||= whole;
    if (this.#busy) {
      this.#again = true;
      return;
    }
    if (this.#timer && soon > 0) return;
    clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => void this.#load(), soon);
  }

  async #load(): Promise<void> {
    this.#timer = 0;
    this.#busy = true;
    this.#again = false;
    const whole = this.ended && this.#whole;
    try {
      // Of other machines no event tells, so what is shown of them would be old.
      const listing = await get<Listing>(`/v1/sessions?host=local${whole ? '&all=true' : ''}`);
      if (whole) this.#whole = false;
      this.take(listing, whole);
    } catch {
      // The stream says that the line is lost, and its next `reset` asks again.
    } finally {
      this.#busy = false;
      if (this.#again || (this.ended && this.#whole && this.line === 'live')) this.look();
    }
  }

  /** Takes a listing; one of what lives leaves the ended ones that are known. */
  take(listing: Listing, whole: boolean): void {
    let sessions = listing.sessions;
    if (whole) {
      this.#past = sessions.filter((s) => groupOf(s) === 'ended');
    } else if (this.ended) {
      const here = new Set(sessions.map((s) => s.id));
      sessions = [...sessions, ...this.#past.filter((s) => !here.has(s.id))];
    }
    this.sessions = sessions;
    this.unbound = listing.unbound;
    this.warnings = listing.warnings;
    this.hidden = listing.hidden?.ended ?? 0;
    this.now = Date.now();
    this.loaded = true;
    this.sample(listing.sessions);
  }

  private sample(sessions: Session[]): void {
    for (const session of sessions) {
      const total = tokens(session);
      if (total === null || session.live === false) continue;
      const known = this.samples.get(session.id) ?? [];
      if (known.at(-1)?.tokens === total) continue;
      known.push({ at: Date.parse(session.updated_at ?? '') || Date.now(), tokens: total, cost: session.cost_usd });
      this.samples.set(session.id, known.slice(-500));
    }
  }

  header(): string {
    const parts = GROUPS.map((g) => ({ g, n: this.counts[g.group] })).filter(({ n }) => n > 0);
    return parts.map(({ g, n }) => g.count(n)).join(' · ');
  }
}

export const fleet = new Fleet();
