// Light or dark: what the system says, unless a person chose otherwise on this machine.

const KEY = 'lariat.theme';
const dark = matchMedia('(prefers-color-scheme: dark)');

class Theme {
  chosen = $state(localStorage.getItem(KEY));
  system = $state(dark.matches);
  isDark = $derived(this.chosen ? this.chosen === 'dark' : this.system);

  toggle(): void {
    this.chosen = this.isDark ? 'light' : 'dark';
    // Chosen back to what the system says, it follows the system again.
    if ((this.chosen === 'dark') === this.system) this.chosen = null;
    if (this.chosen) localStorage.setItem(KEY, this.chosen);
    else localStorage.removeItem(KEY);
    applyTheme();
  }
}

export const theme = new Theme();

dark.addEventListener('change', () => {
  theme.system = dark.matches;
  applyTheme();
});

export function applyTheme(): void {
  document.documentElement.dataset.theme = theme.isDark ? 'dark' : 'light';
}
