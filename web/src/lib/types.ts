// What the daemon answers, as `--json` prints it. What is not known is null.

export type Word =
  | 'waiting' | 'working' | 'starting' | 'idle' | 'done' | 'failed' | 'stopped' | 'interrupted' | 'unknown';

export interface Tokens { input: number; output: number; cache_read: number; cache_write: number }

export interface Because {
  witness: string;
  fact: string;
  at: string | null;
  source: string | null;
  role: 'decided' | 'agreed' | 'disagreed' | 'context';
}

export interface Session {
  id: string;
  agent: string;
  native_id: string;
  handle: string | null;
  name: string | null;
  host: string | null;
  status: Word;
  reason: string;
  live: boolean | null;
  pid: number | null;
  cwd: string | null;
  branch: string | null;
  model: string | null;
  title: string | null;
  prompt: string | null;
  started_at: string | null;
  updated_at: string | null;
  ended_at: string | null;
  exit: { code?: number; signal?: number } | null;
  tokens: Tokens | null;
  cost_usd: number | null;
  group: string | null;
  kept: boolean;
  restorable: boolean;
  tool: string | null;
  because: Because[];
}

export interface Unbound { agent: string; pid: number; cwd: string | null; started_at: string | null; why: string }
export interface Warning { adapter: string; path?: string | null; error: string; last_ok: string | null }

export interface Listing {
  schema: number;
  at: string;
  sessions: Session[];
  unbound: Unbound[];
  warnings: Warning[];
  hidden?: { ended: number };
}

export interface Told {
  id: string;
  event: string;
  at: string;
  session?: Session | null;
  listing?: Listing;
}

export interface ToolUse { name: string; input: unknown; output: string | null; failed: boolean | null }
export interface Turn { n: number; at: string | null; who: 'person' | 'agent' | 'tool'; text: string; tool: ToolUse | null; cut?: boolean }
export interface Talk { turns: Turn[]; before: number | null }

export interface RestoreRow {
  id: string;
  handle: string | null;
  agent: string;
  cwd: string | null;
  status: string;
  way: string | null;
  outcome: string | null;
  reason: string | null;
}
export interface RestorePlan { plan: boolean; restore: RestoreRow[]; others: RestoreRow[] }

export interface Lock {
  path: string;
  who: string;
  session: string | null;
  by: string | null;
  reason: string | null;
  at: string | null;
  until: string | null;
}

export interface JournalEntry { at: string; what: string; id: string; by: string; how: string }

export interface UsageRow { key: string | null; tokens: Tokens; answers: number; cost_usd: number | null; recorded_usd: number; table_usd: number; unpriced_tokens: number }
export interface Usage { by: string; rows: UsageRow[]; total: UsageRow; unpriced_models: string[]; notes: string[] }

/** What one session used over time; `told` if its agent's store says when. */
export interface UsageOver { told: boolean; steps: (UsageRow & { at: string })[]; total: UsageRow; notes: string[] }

export interface Fuse {
  id: string;
  on: { session?: string; directory?: string };
  limit: { until?: string; tokens?: number; cost?: number; age?: number; idle?: number };
  then: string;
  run: string | null;
  fired_at: string | null;
  outcome: string | null;
  /** 1 is all of it. */
  burnt: number | null;
}

export interface Worktree {
  handle: string;
  path: string;
  branch: string | null;
  work: string | null;
  ahead: number | null;
  behind: number | null;
  size: number | null;
  in_use: string[];
  saved: string[];
  gone: boolean;
  removable: boolean;
  kept: string | null;
}

export interface Check { what: string; health: string; found: string }

export interface Changed { path: string; old_path: string | null; change: string; added: number | null; removed: number | null; untracked: boolean }
export interface Diff { files: Changed[]; more_files: number; base: string | null; patch: string | null; cut: boolean }
