// The one dialog of the page: asks once before something is destroyed, and shows the whole target of a link
// before it is followed.
import { safeTarget } from './text';

export interface Question {
  title: string;
  text: string;
  /** What the button says. */
  yes: string;
  danger?: boolean;
  /** A link instead of a button. */
  href?: string;
  then?: () => void;
}

class Asking {
  question = $state.raw<Question | null>(null);
}

export const asking = new Asking();

export function askOnce(question: Question): void {
  asking.question = question;
}

/** Shows where a link leads; never goes there by itself. */
export function askToFollow(target: string): void {
  const href = safeTarget(target);
  if (!href) return;
  askOnce({ title: 'Leave for another site?', text: href, yes: 'Open in a new tab', href });
}
