// Lists sessions without knowing anything from before: every transcript is read whole, and of its lines only the
// first and the last are parsed, which is less than such programs do.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const parsed = (line) => {
  try {
    return JSON.parse(line);
  } catch {
    return {}; // cut short
  }
};
const sessions = [];
for (const root of process.argv.slice(2)) {
  for (const entry of readdirSync(root, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || !entry.name.endsWith('.jsonl')) continue;
    const path = join(entry.parentPath, entry.name);
    const lines = readFileSync(path, 'utf8').split('\n').filter((line) => line !== '');
    const [first, last] = [parsed(lines[0]), parsed(lines.at(-1))];
    sessions.push({ path, lines: lines.length, first: first.timestamp, last: last.timestamp, cwd: last.cwd });
  }
}
process.stdout.write(JSON.stringify({ files: sessions.length, sessions }));
