// Builds the page into dist/, each file a second time as NAME.gz: that is what the daemon embeds.
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig, type Plugin } from 'vite';

/** Writes NAME.gz beside every file; the same bytes for the same input. */
function gzipped(folder: string): Plugin {
  return {
    name: 'gzipped',
    apply: 'build',
    closeBundle() {
      for (const name of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
        const path = join(folder, name);
        if (statSync(path).isFile() && !name.endsWith('.gz')) {
          writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }));
        }
      }
    },
  };
}

export default defineConfig({
  plugins: [svelte(), gzipped('dist')],
  build: {
    target: 'es2022',
    // Everything is a file of its own: the policy allows no script and no font from a data URL.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    emptyOutDir: true,
  },
});
