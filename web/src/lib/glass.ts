// One connection to a session's terminal, drawn by xterm. Loaded only when a terminal is opened.
import { FitAddon } from '@xterm/addon-fit';
import { Terminal } from '@xterm/xterm';
import '@xterm/xterm/css/xterm.css';
import { of } from './api';
import { askToFollow } from './ask.svelte';
import { entrance } from './enter.svelte';
import { row } from './text';

export interface Watcher {
  /** Whether to look only. */
  watch: boolean;
  opened(): void;
  /** It is over; `ended` if the session is. */
  closed(why: string, ended: boolean): void;
}

function address(id: string): string {
  const url = new URL(of(id, 'terminal'), location.href);
  url.protocol = 'ws:';
  return url.href;
}

/** Connects; call what it returns to leave. */
export function connect(glass: HTMLElement, id: string, watcher: Watcher): () => void {
  if (!entrance.trusted) {
    watcher.closed('no word from the daemon', false);
    return () => {};
  }
  const only = watcher.watch;
  const terminal = new Terminal({
    allowProposedApi: false,
    cursorBlink: false,
    disableStdin: only,
    fontFamily: "ui-monospace, 'DejaVu Sans Mono', 'Liberation Mono', monospace",
    fontSize: 13,
    // By itself it would ask with the browser's own dialog, and go anywhere.
    linkHandler: { activate: (_, target) => askToFollow(target), allowNonHttpProtocols: false },
    screenReaderMode: true,
    scrollback: 5000,
    theme: { background: '#101214', foreground: '#e4e6e9' },
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(glass);
  terminal.textarea?.setAttribute('aria-label', 'Terminal input');

  // Whatever is typed is for the daemon that is there now, and for nobody who comes after it.
  const turn = entrance.turn;
  const ours = () => entrance.trusted && turn === entrance.turn;
  const socket = new WebSocket(address(id), ['lariat.terminal.v1', `lariat.token.${entrance.token}`]);
  socket.binaryType = 'arraybuffer';
  const bytes = new TextEncoder();
  const send = (data: string | Uint8Array<ArrayBuffer>) => socket.readyState === WebSocket.OPEN && ours() && socket.send(data);
  const resize = () => {
    const size = fit.proposeDimensions();
    if (!only && size && size.cols > 1) send(JSON.stringify({ resize: [size.cols, size.rows] }));
  };
  let end: string | null = null;
  socket.onopen = () => {
    if (!ours()) return socket.close();
    if (only) send(JSON.stringify({ watch: true }));
    resize();
    if (!only) terminal.focus();
    watcher.opened();
  };
  socket.onmessage = ({ data }: MessageEvent<ArrayBuffer | string>) => {
    if (!ours()) return socket.close();
    if (typeof data !== 'string') return terminal.write(new Uint8Array(data));
    const said = JSON.parse(data) as { size?: [number, number]; ended?: { code?: number | null; signal?: number | null } };
    if (said.size) terminal.resize(Math.max(2, said.size[0]), Math.max(1, said.size[1]));
    if (said.ended) end = said.ended.signal ? `by signal ${said.ended.signal}` : `with code ${said.ended.code ?? '?'}`;
  };
  socket.onclose = ({ reason }) => (end === null ? watcher.closed(row(reason), false) : watcher.closed(end, true));
  const typed = terminal.onData((text) => !only && send(bytes.encode(text)));
  const raw = terminal.onBinary((text) => !only && send(Uint8Array.from(text, (c) => c.charCodeAt(0))));
  const sized = new ResizeObserver(resize);
  sized.observe(glass);
  return () => {
    sized.disconnect();
    typed.dispose();
    raw.dispose();
    socket.onclose = null;
    socket.close();
    terminal.dispose();
  };
}
