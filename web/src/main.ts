// Where the page begins: takes the secret out of the address before anything else, then shows the page.
import { mount } from 'svelte';
import App from './App.svelte';
import './app.css';
import { enter } from './lib/enter.svelte';
import { applyTheme } from './lib/theme.svelte';

applyTheme();
void enter();
const target = document.getElementById('page');
if (target) mount(App, { target });
