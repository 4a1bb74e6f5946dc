import './lib/tokens.css';
import './lib/base.css';
import './lib/theme.svelte';

import { mount } from 'svelte';
import App from './App.svelte';
import { listen } from './lib/keys';

listen();
mount(App, { target: document.getElementById('app')! });
