// What can be done with a file that a tool made. Its type is the tool's word, and the file can be anything.

/** An asset as its event has it. */
export interface Asset {
  assetId: string;
  kind?: string;
  mediaType: string;
  metadata?: unknown;
  sha256?: string;
  size?: number;
}

export type Shown = 'image' | 'svg' | 'audio' | 'video' | 'text' | 'other';

/** What the server hands out with its type; everything else comes as bytes to be saved. */
const shown: Record<string, Shown> = {
  'image/png': 'image',
  'image/jpeg': 'image',
  'image/gif': 'image',
  'image/webp': 'image',
  'image/avif': 'image',
  'image/svg+xml': 'svg',
  'video/mp4': 'video',
  'video/webm': 'video',
  'video/ogg': 'video',
  'audio/ogg': 'audio',
  'audio/webm': 'audio',
  'audio/mp4': 'audio',
  'audio/mpeg': 'audio',
  'audio/mp3': 'audio',
  'audio/wav': 'audio',
  'audio/wave': 'audio',
  'audio/x-wav': 'audio',
  'audio/vnd.wave': 'audio',
  'application/json': 'text',
};

/** How much of a text is shown, and how large a drawing may be. */
export const mostText = 64 << 10;
export const mostDrawing = 4 << 20;

/** How an asset is shown. All text is shown as text, whatever it means to others: a page too is its source. */
export function shownAs(asset: Asset): Shown {
  if (!assetURL(asset)) return 'other';
  const type = essence(asset.mediaType);
  const how = Object.hasOwn(shown, type) ? shown[type]! : type.startsWith('text/') ? 'text' : 'other';
  return how === 'svg' && (asset.size ?? 0) > mostDrawing ? 'other' : how;
}

export function isPicture(asset: Asset): boolean {
  const how = shownAs(asset);
  return how === 'image' || how === 'svg';
}

/** A media type without its parameters. */
export function essence(mediaType: string): string {
  return (mediaType.split(';', 1)[0] ?? '').trim().toLowerCase();
}

/** Where the content is, relative to the page; undefined for one that was never registered, whose path is on another machine. */
export function assetURL(asset: Asset): string | undefined {
  return /^[0-9a-f]{64}$/.test(asset.sha256 ?? '') ? `v1/assets/${asset.sha256}` : undefined;
}

/** What a picture shows, as far as its tool says. */
export function caption(asset: Asset): string {
  const meta =
    typeof asset.metadata === 'object' && asset.metadata !== null ? (asset.metadata as Record<string, unknown>) : {};
  for (const key of ['alt', 'title', 'caption', 'description']) {
    const text = Object.hasOwn(meta, key) ? meta[key] : undefined;
    if (typeof text === 'string' && text.trim() !== '') return text;
  }
  return asset.assetId;
}

/** One of each content, in the order in which they came. */
export function distinct(assets: readonly Asset[]): Asset[] {
  const seen = new Map<string, Asset>();
  for (const a of assets) {
    const key = a.sha256 || a.assetId;
    if (!seen.has(key)) seen.set(key, a);
  }
  return [...seen.values()];
}
