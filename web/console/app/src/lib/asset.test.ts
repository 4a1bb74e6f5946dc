import { expect, test } from 'vitest';
import { assetURL, caption, distinct, shownAs, type Asset } from './asset';

const sha256 = 'ab'.repeat(32);
const asset = (mediaType: string, more: Partial<Asset> = {}): Asset => ({
  assetId: 'a',
  mediaType,
  sha256,
  size: 10,
  ...more,
});

test.each([
  ['image/png', 'image'],
  ['IMAGE/PNG; q=1', 'image'],
  ['image/svg+xml', 'svg'],
  ['audio/mpeg', 'audio'],
  ['video/webm', 'video'],
  ['text/plain', 'text'],
  ['text/html', 'text'],
  ['application/json', 'text'],
  ['image/tiff', 'other'],
  ['application/pdf', 'other'],
  ['constructor', 'other'],
  ['', 'other'],
])('%s is shown as %s', (type, how) => {
  expect(shownAs(asset(type))).toBe(how);
});

test('a drawing that is too large, and what was never registered, are placeholders', () => {
  expect(shownAs(asset('image/svg+xml', { size: 5 << 20 }))).toBe('other');
  expect(shownAs(asset('image/png', { sha256: undefined }))).toBe('other');
});

test('only a digest makes an address', () => {
  expect(assetURL(asset('image/png'))).toBe(`v1/assets/${sha256}`);
  for (const bad of ['', '../../x', sha256.toUpperCase(), `${sha256}/..`, 'javascript:alert(1)']) {
    expect(assetURL(asset('image/png', { sha256: bad }))).toBeUndefined();
  }
});

test('the caption is what the tool says, and else the id', () => {
  expect(caption(asset('image/png', { metadata: { title: 'A cave', alt: ' ' } }))).toBe('A cave');
  expect(caption(asset('image/png', { metadata: { title: { toString: 1 } } }))).toBe('a');
  expect(caption(asset('image/png', { metadata: null }))).toBe('a');
});

test('one content is there once', () => {
  expect(
    distinct([asset('image/png'), asset('image/png', { assetId: 'b' }), asset('text/plain', { sha256: '' })]),
  ).toHaveLength(2);
});
