// Which view is shown: the fragment of the address, so that back, forward and reload do what people expect.

export type Tab = 'talk' | 'terminal' | 'why' | 'changes' | 'usage';
export const TABS: { tab: Tab; name: string }[] = [
  { tab: 'talk', name: 'Conversation' },
  { tab: 'terminal', name: 'Terminal' },
  { tab: 'why', name: 'Why' },
  { tab: 'changes', name: 'Changes' },
  { tab: 'usage', name: 'Usage' },
];

export const VIEWS = [
  { view: 'fleet', name: 'Fleet', path: '#/' },
  { view: 'inbox', name: 'Inbox', path: '#/inbox' },
  { view: 'launch', name: 'Launch', path: '#/launch' },
  { view: 'restore', name: 'Restore', path: '#/restore' },
  { view: 'locks', name: 'Locks', path: '#/locks' },
  { view: 'worktrees', name: 'Worktrees', path: '#/worktrees' },
  { view: 'fuses', name: 'Fuses', path: '#/fuses' },
  { view: 'timeline', name: 'Timeline', path: '#/timeline' },
  { view: 'usage', name: 'Usage', path: '#/usage' },
  { view: 'journal', name: 'Journal', path: '#/journal' },
  { view: 'doctor', name: 'Doctor', path: '#/doctor' },
] as const;

export type View = (typeof VIEWS)[number]['view'] | 'session';

export interface Route { view: View; id: string; tab: Tab }

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function read(hash: string): Route {
  const [, first = '', second = '', third = ''] = hash.split('/');
  if (first === 's' && second) {
    return { view: 'session', id: decoded(second), tab: TABS.find((t) => t.tab === third)?.tab ?? 'talk' };
  }
  return { view: VIEWS.find((v) => v.view === first)?.view ?? 'fleet', id: '', tab: 'talk' };
}

class Where {
  route = $state.raw<Route>(read(location.hash));
}

export const where = new Where();

addEventListener('hashchange', () => {
  where.route = read(location.hash);
});

export function toSession(id: string, tab: Tab = 'talk'): string {
  return `#/s/${encodeURIComponent(id)}${tab === 'talk' ? '' : `/${tab}`}`;
}

export function go(hash: string): void {
  location.hash = hash;
}
