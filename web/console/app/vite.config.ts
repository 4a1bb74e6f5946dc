import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

// The server that `npm run dev` hands API requests on to: a toolpost that runs.
const server = process.env.TOOLPOST_URL ?? 'http://127.0.0.1:8700';

// The names of the output depend on its content alone, so that a second build gives the same bytes: a test compares it with
// what is committed. Nothing is inlined as data: the content security policy allows scripts and styles of our own only.
export default defineConfig({
  plugins: [svelte()],
  base: './',
  build: {
    outDir: '../dist',
    emptyOutDir: true,
    target: ['chrome123', 'firefox128', 'safari17.5'],
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    rollupOptions: {
      output: {
        // What the shell and the first view are made of is one file: a request for each small part would take longer than its bytes.
        advancedChunks: {
          groups: [{ name: 'common', test: /node_modules\/svelte\/|\/src\/lib\/(api|connection|keyed|keys|own|approvals|rank|route|session|text|theme)\b|\/src\/lib\/ui\/(Copy|Duration|Empty|Icon|icons|Lazy|Mark|now|Outcome|outcomes|Page|Ranked|Skeleton|Time)\b/ }],
        },
        entryFileNames: 'assets/[name]-[hash].js',
        // Views are called by their folder: six files called Main tell nobody anything.
        chunkFileNames: (chunk) => `assets/${/\/views\/(\w+)\//.exec(chunk.facadeModuleId ?? '')?.[1] ?? '[name]'}-[hash].js`,
        assetFileNames: 'assets/[name]-[hash][extname]',
      },
    },
  },
  server: {
    // The server accepts pages of its own origin alone; through the proxy this is one, in whatever the browser says.
    proxy: {
      '/v1': {
        target: server,
        changeOrigin: true,
        configure: (proxy) => proxy.on('proxyReq', (request) => request.setHeader('Origin', server)),
      },
    },
  },
});
