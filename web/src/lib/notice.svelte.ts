// What became of what a person asked: one line at the bottom, read aloud, gone by itself unless it failed.
import { said } from './api';

class Notice {
  text = $state('');
  failed = $state(false);
  #timer = 0;

  say(text: string, failed = false): void {
    clearTimeout(this.#timer);
    this.text = text;
    this.failed = failed;
    if (!failed) this.#timer = window.setTimeout(() => (this.text = ''), 6000);
  }

  clear(): void {
    this.text = '';
  }
}

export const notice = new Notice();

/** Does something and says how it went; whether it went well. */
export async function attempt(what: string, deed: () => Promise<unknown>): Promise<boolean> {
  try {
    await deed();
    notice.say(what);
    return true;
  } catch (error) {
    notice.say(said(error), true);
    return false;
  }
}
