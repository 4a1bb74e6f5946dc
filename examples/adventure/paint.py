"""Paints the scenes of the adventure: SVG in layers, from the sky to the nearest leaf, with light that follows the story.

It speaks Narratoria: one JSON object a line on stdout, and `done` at the end. Everything is drawn from seeded random
numbers, so that a place looks the same whenever you come back to it.
"""

import json
import math
import os
import random
import sys
import tempfile

WIDTH, HEIGHT = 800, 450
SOFT = '<filter id="soft" x="-40%" y="-10%" width="180%" height="120%"><feGaussianBlur stdDeviation="16 6"/></filter>'


class Canvas:
    """Collects shapes, back to front, and the gradients that they use."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.shapes, self.defs = [], []

    def add(self, markup):
        self.shapes.append(markup)

    def define(self, kind, attributes, stops):
        name = f"g{len(self.defs)}"
        inner = "".join(
            f'<stop offset="{at:.3g}" stop-color="{color}" stop-opacity="{opacity:.3g}"/>' for at, color, opacity in stops
        )
        self.defs.append(f'<{kind} id="{name}" {attributes}>{inner}</{kind}>')
        return f"url(#{name})"

    def down(self, *stops):
        """A gradient from top to bottom, of (offset, colour) or (offset, colour, opacity)."""
        return self.define("linearGradient", 'x1="0" y1="0" x2="0" y2="1"', [(*s, 1)[:3] for s in stops])

    def across(self, *stops):
        return self.define("linearGradient", 'x1="0" y1="0" x2="1" y2="0"', [(*s, 1)[:3] for s in stops])

    def round(self, *stops):
        return self.define("radialGradient", "", [(*s, 1)[:3] for s in stops])

    def rect(self, x, y, w, h, fill, more=""):
        self.add(f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" fill="{fill}" {more}/>')

    def ellipse(self, x, y, rx, ry, fill, more=""):
        self.add(f'<ellipse cx="{x:.1f}" cy="{y:.1f}" rx="{rx:.1f}" ry="{ry:.1f}" fill="{fill}" {more}/>')

    def dot(self, x, y, r, fill, more=""):
        self.add(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.2f}" fill="{fill}" {more}/>')

    def path(self, d, fill, more=""):
        self.add(f'<path d="{d}" fill="{fill}" {more}/>')

    def line(self, d, stroke, width, more=""):
        self.add(f'<path d="{d}" fill="none" stroke="{stroke}" stroke-width="{width}" stroke-linecap="round" {more}/>')

    def glow(self, x, y, r, color, opacity=1.0, core=None):
        """Light: it adds to what lies below, and has no edge."""
        fill = self.round((0, core or color, opacity), (0.25, color, opacity * 0.55), (0.6, color, opacity * 0.16), (1, color, 0))
        self.dot(x, y, r, fill, 'style="mix-blend-mode:screen"')

    def beam(self, d, color, opacity):
        """A shaft of light, with soft edges."""
        fill = self.down((0, color, opacity), (0.6, color, opacity * 0.5), (1, color, 0))
        self.path(d, fill, 'filter="url(#soft)" style="mix-blend-mode:screen"')

    def sky(self, *stops):
        self.rect(0, 0, WIDTH, HEIGHT, self.down(*stops))

    def stars(self, count, below=300, color="#fff"):
        for _ in range(count):
            x, y = self.random.uniform(0, WIDTH), self.random.uniform(0, below) ** 1.04
            fade = (1 - y / below) if y < below else 0
            self.dot(x, y, self.random.choice([0.5, 0.6, 0.7, 0.9, 1.3]), color, f'opacity="{0.15 + 0.8 * max(fade, 0):.2f}"')

    def outline(self, y, swing, rough=0.55, steps=7, left=None, right=None):
        """The line of a range of hills: midpoints moved, again and again, by less and less."""
        points = [(-20, y if left is None else left), (WIDTH + 20, y if right is None else right)]
        for _ in range(steps):
            finer = []
            for (x0, y0), (x1, y1) in zip(points, points[1:]):
                finer += [(x0, y0), ((x0 + x1) / 2, (y0 + y1) / 2 + self.random.uniform(-swing, swing))]
            points = finer + [points[-1]]
            swing *= rough
        return points

    def ridge(self, points, fill, more="", floor=HEIGHT + 10):
        d = f"M{points[0][0]:.0f} {floor}" + "".join(f"L{x:.1f} {y:.1f}" for x, y in points) + f"L{points[-1][0]:.0f} {floor}Z"
        self.path(d, fill, more)

    def mist(self, y, height, color, opacity):
        self.rect(0, y, WIDTH, height, self.down((0, color, 0), (0.5, color, opacity), (1, color, 0)))

    def pines(self, points, fill, sizes=(10, 22), chance=0.5, where=(0, WIDTH)):
        d = ""
        for x, y in points:
            if where[0] <= x <= where[1] and self.random.random() < chance:
                h = self.random.uniform(*sizes)
                w = h * 0.21
                d += f"M{x:.1f} {y - h:.1f}"
                for i in range(1, 4):
                    d += f"L{x + w * i / 3:.1f} {y - h + h * i / 3.1:.1f}L{x + w * i / 5.4:.1f} {y - h + h * i / 3.1:.1f}"
                for i in range(3, 0, -1):
                    d += f"L{x - w * i / 5.4:.1f} {y - h + h * i / 3.1:.1f}L{x - w * i / 3:.1f} {y - h + h * i / 3.1:.1f}"
                d += f"ZM{x - 1:.1f} {y - 3:.1f}h2v6h-2Z"
        self.path(d, fill)

    def hero(self, x, y, size=1.0, color="#0b0a12", lit=False, torch=True, rim=None):
        """A small figure in a cloak, from behind, and a torch that may burn."""
        s = size
        if rim:
            self.line(f"M{x + 5 * s:.1f} {y - 30 * s:.1f}q{6 * s:.1f} {12 * s:.1f} {6 * s:.1f} {29 * s:.1f}", rim, 1.6 * s, 'opacity=".8"')
        self.path(
            f"M{x:.1f} {y - 42 * s:.1f}c{6 * s:.1f} 0 {7 * s:.1f} {6 * s:.1f} {6 * s:.1f} {10 * s:.1f}"
            f"c{6 * s:.1f} {6 * s:.1f} {6 * s:.1f} {20 * s:.1f} {7 * s:.1f} {32 * s:.1f}h{-26 * s:.1f}"
            f"c{1 * s:.1f} {-12 * s:.1f} {1 * s:.1f} {-26 * s:.1f} {7 * s:.1f} {-32 * s:.1f}"
            f"c{-1 * s:.1f} {-4 * s:.1f} 0 {-10 * s:.1f} {6 * s:.1f} {-10 * s:.1f}Z", color)
        if not torch:
            return
        tx, ty = x + 17 * s, y - 40 * s
        self.line(f"M{x + 6 * s:.1f} {y - 22 * s:.1f}L{tx - 2 * s:.1f} {ty + 14 * s:.1f}", color, 3 * s)
        self.line(f"M{tx - 3 * s:.1f} {ty + 20 * s:.1f}L{tx:.1f} {ty:.1f}", "#2a1a12", 2.4 * s)
        if lit:
            self.glow(tx, ty - 5 * s, 150 * s, "#ff9a3c", 0.55)
            self.flame(tx, ty, s)

    def flame(self, x, y, s=1.0):
        for color, k in (("#ff7a1a", 1.0), ("#ffc04a", 0.66), ("#fff4cf", 0.34)):
            self.path(
                f"M{x:.1f} {y - 19 * s * k:.1f}c{2 * s * k:.1f} {6 * s * k:.1f} {7 * s * k:.1f} {8 * s * k:.1f} {5.5 * s * k:.1f} {15 * s * k:.1f}"
                f"c{-1.5 * s * k:.1f} {6 * s * k:.1f} {-9.5 * s * k:.1f} {6 * s * k:.1f} {-11 * s * k:.1f} 0"
                f"c{-1 * s * k:.1f} {-6 * s * k:.1f} {4 * s * k:.1f} {-8 * s * k:.1f} {5.5 * s * k:.1f} {-15 * s * k:.1f}Z", color)
        self.glow(x, y - 6 * s, 26 * s, "#ffb347", 0.9, "#fff6da")

    def motes(self, count, box, color, sizes=(0.6, 1.8), opacity=(0.2, 0.9)):
        x0, y0, x1, y1 = box
        for _ in range(count):
            self.dot(self.random.uniform(x0, x1), self.random.uniform(y0, y1), self.random.uniform(*sizes), color,
                     f'opacity="{self.random.uniform(*opacity):.2f}"')

    def spikes(self, y, fill, length=(20, 90), width=(10, 30), upward=False, gap=(4, 26), where=(0, WIDTH)):
        """Stalactites, or what grows towards them."""
        x, d = where[0] - 20, ""
        while x < where[1] + 20:
            w, h = self.random.uniform(*width), self.random.uniform(*length)
            if upward:
                h = -h
            d += f"M{x:.1f} {y:.1f}C{x + w * 0.35:.1f} {y + h * 0.2:.1f} {x + w * 0.45:.1f} {y + h * 0.7:.1f} {x + w * 0.5:.1f} {y + h:.1f}"
            d += f"C{x + w * 0.55:.1f} {y + h * 0.7:.1f} {x + w * 0.65:.1f} {y + h * 0.2:.1f} {x + w:.1f} {y:.1f}Z"
            x += w + self.random.uniform(*gap) - 10
        self.path(d, fill)

    def cave(self, color, top=50, bottom=70, swing=26):
        """The rock all around, nearest to whoever looks."""
        roof = self.outline(top, swing)
        self.path("M-20 -10" + "".join(f"L{x:.1f} {y:.1f}" for x, y in roof) + f"L{WIDTH + 20} -10Z", color)
        self.spikes(top - 10, color, length=(26, 70))
        self.ridge(self.outline(HEIGHT - bottom, swing * 0.5, left=HEIGHT - bottom - 40, right=HEIGHT - bottom - 40), color)

    def vignette(self, strength=0.6, color="#000"):
        fill = self.define("radialGradient", 'cx=".5" cy=".48" r=".72"', [(0.45, color, 0), (1, color, strength)])
        self.rect(0, 0, WIDTH, HEIGHT, fill)

    def svg(self, title):
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">'
            f"<title>{title}</title><defs>{SOFT}{''.join(self.defs)}</defs>{''.join(self.shapes)}</svg>\n"
        )


def shade(color, by):
    """A colour made lighter (by > 0) or darker."""
    parts = [int(color[i:i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(p + (255 - p) * by if by > 0 else p * (1 + by)):02x}" for p in parts)


def village(c, x, y, windows="#ffd27a", color="#171327"):
    for dx, w, h in ((0, 20, 13), (23, 15, 17), (42, 24, 12), (70, 14, 15), (89, 21, 12)):
        c.path(f"M{x + dx} {y}v{-h}l{w / 2} {-8}l{w / 2} 8v{h}Z", color)
        for i in range(2):
            c.rect(x + dx + 4 + i * (w - 11), y - h + 4, 3, 4, windows)
    c.path(f"M{x + 58} {y}v-30l5 -14l5 14v30Z", color)
    c.glow(x + 55, y - 6, 70, windows, 0.35)


def hill(c, lit, mood):
    night = mood == "night"
    if night:
        c.sky((0, "#070b1f"), (0.55, "#17204a"), (0.85, "#3a3566"), (1, "#51406b"))
        c.stars(170, 320)
        c.glow(150, 90, 150, "#cfd8ff", 0.5)
        c.path("M150 64a26 26 0 1 0 24 36a21 21 0 1 1 -24 -36Z", "#eef1ff")
    else:
        c.sky((0, "#1c1b44"), (0.34, "#51356f"), (0.58, "#b25a76"), (0.74, "#f2925f"), (0.86, "#ffd08a"))
        c.stars(60, 150)
        c.glow(236, 268, 340, "#ffb066", 0.9)
        c.dot(236, 268, 38, c.round((0, "#fffbe6"), (0.7, "#ffe9ae"), (1, "#ffcf83")))
        for x, y, w in ((70, 120, 190), (330, 84, 260), (520, 150, 170), (110, 190, 120)):
            c.ellipse(x + w / 2, y, w / 2, 5, "#ffb98f", 'opacity=".28"')
            c.ellipse(x + w / 2 + 30, y + 7, w / 2.6, 3, "#ffd9a8", 'opacity=".3"')
    tones = ("#2c2f5c", "#232650", "#191b3b") if night else ("#a8617f", "#77466f", "#46305c")
    c.ridge(c.outline(300, 40, left=270), tones[0], 'opacity=".85"')
    c.mist(282, 70, "#8d7fb0" if night else "#ffd3a0", 0.4)
    near = c.outline(338, 26)
    c.ridge(near, tones[1])
    c.pines(near, tones[1], (8, 18), 0.7)
    c.mist(330, 60, "#6b639c" if night else "#f7b08d", 0.3)
    low = c.outline(375, 14, left=372, right=330)
    c.ridge(low, tones[2])
    c.pines(low, tones[2], (14, 30), 0.5, (210, 520))
    village(c, 62, 376, color=shade(tones[2], -0.25))
    # The hill itself, with a round door in it.
    c.path("M330 460C400 410 452 262 560 214C640 180 720 196 830 250V460Z",
           c.define("linearGradient", 'x1="0" y1="0" x2="1" y2="1"', [(0, "#3c2a4e" if not night else "#1c2044", 1), (0.4, "#1b1630", 1), (1, "#0c0a18", 1)]))
    c.line("M352 442C412 396 458 270 560 216C640 182 716 196 800 240", "#ffb27a" if not night else "#8fa0e0", 1.6, 'opacity=".55"')
    for _ in range(150):  # grass, along the curve of the hill
        t = c.random.random()
        x = (1 - t) ** 3 * 560 + 3 * (1 - t) ** 2 * t * 640 + 3 * (1 - t) * t * t * 720 + t ** 3 * 830
        y = (1 - t) ** 3 * 214 + 3 * (1 - t) ** 2 * t * 180 + 3 * (1 - t) * t * t * 196 + t ** 3 * 250
        c.line(f"M{x:.0f} {y + 4:.0f}q{c.random.uniform(-2, 2):.1f} -5 {c.random.uniform(-4, 4):.1f} -10", "#1d1533", 1)
    c.glow(625, 352, 120, "#ffb25a", 0.55 if lit else 0.3)
    c.dot(625, 350, 49, "#0a0814")
    c.dot(625, 350, 44, c.round((0, "#7a4a26"), (0.8, "#4e2d1a"), (1, "#2f1a12")))
    for x in (-26, -9, 9, 26):
        c.line(f"M{625 + x} {350 - math.sqrt(44 ** 2 - x ** 2):.0f}V{350 + math.sqrt(44 ** 2 - x ** 2):.0f}", "#2a170e", 1.4)
    c.dot(648, 354, 3.2, "#ffd88a")
    c.path("M576 400h98l14 16h-126Z", "#1a1326")
    c.path("M556 416h138l18 20h-174Z", "#120d1d")
    c.rect(520, 352, 4, 66, "#100b18")
    c.add('<g transform="rotate(-4 522 356)"><rect x="490" y="338" width="66" height="30" rx="2" fill="#3a2618"/>'
          '<text x="523" y="351" font-family="Georgia,serif" font-size="10.5" fill="#f4d9a6" text-anchor="middle">DRAGON</text>'
          '<text x="523" y="363" font-family="Georgia,serif" font-size="8" fill="#d9b98a" text-anchor="middle">Back Tuesday</text></g>')
    c.ridge(c.outline(424, 8, left=432, right=420), "#0a0813")
    c.hero(300, 434, 1.4, "#08060f", lit, rim="#ffb27a" if not night else "#94a4e6")
    c.vignette(0.45, "#0a0618")


def hall(c, lit, mood):
    if lit:
        c.sky((0, "#160d12"), (0.5, "#3b2018"), (1, "#1c0f10"))
        c.glow(400, 300, 420, "#ff9440", 0.62)
    else:
        c.sky((0, "#04060d"), (0.5, "#0b1322"), (1, "#04060c"))
        c.glow(400, 210, 300, "#35507e", 0.34)
    back = "#5a3122" if lit else "#121c30"
    # Three ways on, at the far end.
    for x, w, h, inside in ((250, 62, 120, "#3c6fa3"), (400, 78, 150, "#d9a24f"), (552, 62, 120, "#3fae92")):
        fill = c.down((0, shade(back, -0.45)), (1, shade(back, -0.7)))
        c.path(f"M{x - w / 2 - 9} 330V{330 - h * 0.6}a{w / 2 + 9} {h * 0.42} 0 0 1 {w + 18} 0V330Z", shade(back, 0.10))
        c.path(f"M{x - w / 2} 330V{330 - h * 0.6}a{w / 2} {h * 0.38} 0 0 1 {w} 0V330Z", fill)
        c.glow(x, 300, w * 1.25, inside, 0.55 if lit else 0.34)
    c.rect(0, 330, WIDTH, 130, c.down((0, "#4a2a1c" if lit else "#0e1728", 0.9), (1, "#190c0a" if lit else "#04070d", 1)))
    c.ellipse(400, 400, 300, 56, c.round((0, "#ffb066" if lit else "#4a78c0", 0.55 if lit else 0.3), (1, "#ff9440" if lit else "#2a4a80", 0)))
    c.path("M120 470L330 330H470L680 470Z", c.down((0, "#c77b3d" if lit else "#1f3050", 0.6), (1, "#5a2d18" if lit else "#0c1524", 0.35)))
    for i in range(7):
        y = 332 + i * i * 2.9
        c.line(f"M{400 - 75 - i * 24} {y}H{400 + 75 + i * 24}", "#1a0d0a" if lit else "#05080f", 1.2, 'opacity=".6"')
    # Pillars, in pairs, larger as they come nearer.
    for depth, dx in ((0.42, 205), (0.62, 268), (1.0, 372)):
        for side in (-1, 1):
            x, w, top, foot = 400 + side * dx, 34 * depth, -10, 322 + 90 * depth
            warm = c.across((0, shade("#2a1712", 0), 1), (0.5, "#9a5a33" if depth < 0.9 else "#6b3a24", 1), (1, "#24120f", 1)) if lit else \
                c.across((0, "#05080f", 1), (0.5, "#16233a", 1), (1, "#05080f", 1))
            c.path(f"M{x - w} {top}C{x - w * 0.7:.0f} {top + 110 * depth:.0f} {x - w * 0.6:.0f} {foot - 90 * depth:.0f} {x - w * 1.05:.0f} {foot}"
                   f"H{x + w * 1.05:.0f}C{x + w * 0.6:.0f} {foot - 90 * depth:.0f} {x + w * 0.7:.0f} {top + 110 * depth:.0f} {x + w} {top}Z", warm)
            c.ellipse(x, foot, w * 1.3, 8 * depth, "#000", 'opacity=".45"')
    c.cave("#0a0609" if lit else "#020308", 44, 8, 20)
    if not lit:
        for x, y, s in ((138, 250, 1.1), (668, 214, 1.4), (300, 196, 0.8), (585, 268, 0.9), (72, 322, 1.0)):
            c.glow(x + 5 * s, y, 26 * s, "#d8ff8a", 0.3)
            for dx in (0, 11 * s):
                c.ellipse(x + dx, y, 3.4 * s, 2.2 * s, "#e6ff9c")
                c.ellipse(x + dx, y, 0.9 * s, 2.1 * s, "#0a1005")
    c.hero(398, 414, 1.35, "#050306", lit, rim="#ffb066" if lit else "#6f94d0")
    if lit:
        c.motes(50, (180, 120, 640, 410), "#ffcf8f", (0.5, 1.5), (0.2, 0.8))
    c.vignette(0.72)


def bridge(c, lit, mood):
    c.sky((0, "#0d1b2e"), (0.4, "#1c4a5c"), (0.75, "#3f8f8c"), (1, "#a8e0c4"))
    c.glow(400, 470, 420, "#b8ffe0", 0.55)
    for x, w, o in ((318, 46, 0.42), (402, 84, 0.5), (530, 30, 0.36)):
        c.beam(f"M{x} -30h{w}l{w * 0.9 - 30} 480h{-w * 2.4}Z", "#d6fff0", o)
    for i, (tone, inset) in enumerate((("#2f6a72", 150), ("#1f4c58", 90), ("#12313f", 26))):
        for side in (0, 1):
            points, y = [], -20
            while y < 470:
                points.append((inset + 70 - i * 10 + c.random.uniform(-16, 16) + (y - 200) ** 2 / 5200 * (0.6 if i else 0.2), y))
                y += c.random.uniform(14, 34)
            at = (lambda x: x) if side == 0 else (lambda x: WIDTH - x)
            edge = -20 if side == 0 else WIDTH + 20
            c.path(f"M{edge} -20" + "".join(f"L{at(x):.0f} {y:.0f}" for x, y in points) + f"L{edge} 470Z", tone)
        c.mist(330 - i * 36, 150, "#c9ffe8", 0.17)
    c.path("M-10 262H150C160 300 150 360 176 460H-10Z", "#0a1d28")
    c.path("M810 262H650C640 300 650 360 624 460H810Z", "#0a1d28")
    c.line("M0 262H152", "#7fd6c2", 1.5, 'opacity=".5"')
    c.line("M648 262H800", "#7fd6c2", 1.5, 'opacity=".5"')
    sag = lambda t, depth: 262 + depth * 4 * t * (1 - t)
    for i in range(1, 36):
        t = i / 36
        if i in (13, 21, 22, 27):
            continue  # planks that somebody needed more
        x, y = 140 + 520 * t, sag(t, 62)
        c.add(f'<rect x="{x - 6:.1f}" y="{y:.1f}" width="11.5" height="4.4" rx="1" fill="#1a120e" transform="rotate({(0.5 - t) * -46 + c.random.uniform(-5, 5):.0f} {x:.0f} {y:.0f})"/>')
        if i % 3 == 0:
            c.line(f"M{x:.1f} {y:.1f}V{sag(t, 40) - 34:.1f}", "#14100e", 1.1)
    for depth, lift, w in ((62, 0, 2.6), (40, 34, 2)):
        d = "M140 %.1f" % (262 - lift) + "".join(f"L{140 + 520 * i / 40:.1f} {sag(i / 40, depth) - lift:.1f}" for i in range(1, 41))
        c.line(d, "#17110f", w)
    for x in (136, 664):
        c.rect(x - 4, 214, 8, 56, "#120d0c")
        c.rect(x - 7, 212, 14, 6, "#120d0c")
    c.hero(352, sag(0.41, 62) + 2, 0.95, "#07090c", lit, rim="#bff5e0")
    c.spikes(-6, "#06141c", (24, 80), (14, 34))
    for _ in range(9):
        x, y = c.random.uniform(240, 590), c.random.uniform(60, 190)
        s = c.random.uniform(3, 6)
        c.line(f"M{x - s:.1f} {y - s * 0.5:.1f}Q{x - s / 2:.1f} {y - s:.1f} {x:.1f} {y:.1f}Q{x + s / 2:.1f} {y - s:.1f} {x + s:.1f} {y - s * 0.5:.1f}", "#0c222b", 1.3)
    c.vignette(0.5, "#02080c")


def crystal(c, x, y, h, lean, tone):
    w = h * 0.24
    tip = f"{x + lean:.1f} {y - h:.1f}"
    c.path(f"M{x - w:.1f} {y:.1f}L{x - w * 0.8 + lean * 0.7:.1f} {y - h * 0.72:.1f}L{tip}L{x + lean * 0.4:.1f} {y:.1f}Z", shade(tone, 0.32), 'opacity=".95"')
    c.path(f"M{x + lean * 0.4:.1f} {y:.1f}L{tip}L{x + w * 0.8 + lean * 0.7:.1f} {y - h * 0.68:.1f}L{x + w:.1f} {y:.1f}Z", shade(tone, -0.3))


def river(c, lit, mood):
    if mood == "sea":
        return sea(c)
    c.sky((0, "#070d22"), (0.45, "#152a57"), (0.62, "#2b5a8f"), (0.64, "#16345f"), (1, "#061024"))
    c.glow(410, 268, 360, "#5aa9ff", 0.5)
    far = c.outline(236, 26)
    c.ridge(far, "#12254a", floor=290)
    c.spikes(-4, "#0c1a38", (60, 170), (20, 50))
    c.spikes(-8, "#081128", (30, 110), (14, 40))
    for x, y, h, lean, tone in ((118, 300, 92, -14, "#4f7fe0"), (146, 304, 62, 12, "#6f9cf2"), (92, 306, 48, -18, "#3d67c4"), (664, 296, 108, 18, "#8a6be0"),
                                (694, 302, 70, 26, "#a58af0"), (636, 304, 54, -10, "#6b50c4"), (560, 286, 34, 5, "#4f9fd6"), (232, 286, 30, -4, "#4f9fd6")):
        c.glow(x + lean / 2, y - h / 2, h * 1.2, tone, 0.4)
        crystal(c, x, y, h, lean, tone)
    c.rect(0, 286, WIDTH, 170, c.down((0, "#3d78b8"), (0.3, "#1d4379"), (1, "#050c1d")))
    for _ in range(150):
        y = 290 + 150 * c.random.random() ** 1.6
        w = 8 + (y - 286) * c.random.uniform(0.2, 0.8)
        x = c.random.uniform(-20, WIDTH)
        near = max(0, 1 - abs(x - 410) / 330)
        c.line(f"M{x:.0f} {y:.0f}h{w:.0f}", "#cfe8ff", 0.9 + (y - 286) / 160, f'opacity="{0.05 + 0.4 * near * c.random.random():.2f}"')
    for x, tone in ((118, "#4f7fe0"), (664, "#8a6be0")):
        c.path(f"M{x - 26} 302L{x - 8} 396L{x + 4} 416L{x + 10} 396L{x + 26} 302Z", c.down((0, tone, 0.5), (1, tone, 0)))
    # The ferry, and who runs it.
    c.glow(468, 292, 190, "#ffc46b", 0.7)
    c.path("M330 330C352 362 470 366 508 326C500 332 478 334 468 334H372C356 334 342 334 330 330Z", "#0c0a12")
    c.line("M330 330C352 362 470 366 508 326", "#ffcf88", 1.2, 'opacity=".5"')
    c.line("M486 332V286q0 -8 -9 -8", "#15100f", 2.6)
    c.rect(471, 284, 11, 15, "#ffd98c", 'rx="2"')
    c.glow(476, 291, 30, "#ffe3a6", 0.95, "#fffdf0")
    c.path("M360 334c-4 -22 2 -38 12 -40c-3 -7 0 -13 7 -13c3 -4 10 -4 12 0c7 2 9 8 5 14c10 8 10 24 8 39Z", "#14101a")
    c.dot(384, 289, 1.1, "#ffdf9c")
    c.line("M366 304L316 362", "#14101a", 3)
    c.path("M380 340C400 372 462 372 484 340L470 404C440 420 420 420 396 404Z", c.down((0, "#ffc46b", 0.38), (1, "#ffc46b", 0)))
    c.ridge(c.outline(438, 6, left=432, right=412), "#03060f")
    c.hero(650, 430, 1.3, "#03050c", lit, rim="#8fc4ff")
    c.motes(40, (60, 120, 760, 300), "#bfe0ff", (0.5, 1.3), (0.1, 0.7))
    c.vignette(0.6, "#01030a")


def sea(c):
    c.sky((0, "#274a7a"), (0.3, "#5f8fb4"), (0.52, "#f0c79a"), (0.6, "#ffe6b8"))
    c.glow(560, 262, 330, "#fff0c0", 0.9)
    c.dot(560, 256, 30, "#fffbe8")
    for x, y, rx, ry in ((150, 120, 90, 16), (210, 108, 60, 18), (120, 132, 70, 10), (640, 90, 80, 12), (690, 80, 50, 13), (380, 160, 70, 8)):
        c.ellipse(x, y, rx, ry, "#fff5e6", 'opacity=".5"')
    c.path("M-10 270L-10 190C40 170 70 196 96 214C128 212 150 240 176 254L210 270Z", "#4b5f7c")
    c.path("M60 270c0 -18 8 -32 20 -32s20 14 20 32Z", "#16223a")
    c.rect(0, 268, WIDTH, 190, c.down((0, "#ffe2ae"), (0.08, "#8fb7bd"), (0.45, "#2f6b86"), (1, "#0d2f4a")))
    for i in range(190):
        y = 272 + 170 * c.random.random() ** 1.5
        x = c.random.gauss(560, 60 + (y - 268) * 0.9) if i % 2 else c.random.uniform(0, WIDTH)
        w = 6 + (y - 268) * c.random.uniform(0.1, 0.6)
        c.line(f"M{x:.0f} {y:.0f}q{w / 2:.0f} -2 {w:.0f} 0", "#fff3cf", 0.8 + (y - 268) / 150, f'opacity="{c.random.uniform(0.1, 0.55):.2f}"')
    # Somebody on a barrel, going with the current.
    c.add('<g transform="rotate(-8 330 360)">')
    c.hero(330, 352, 1.1, "#101522", False, torch=False, rim="#ffe6b0")
    c.path("M292 344h78c7 12 7 30 0 42h-78c-7 -12 -7 -30 0 -42Z", c.down((0, "#a9713f"), (0.6, "#5e3a22"), (1, "#33200f")))
    for x in (304, 331, 357):
        c.line(f"M{x} 344q4 21 0 42", "#2a1a10", 2)
    c.add("</g>")
    c.path("M270 378q30 -10 62 0t60 -2v40h-126Z", c.down((0, "#2c6580", 0.96), (1, "#1c4c68", 0.6)))
    c.line("M262 378q34 -11 66 0t70 -3", "#e6fff8", 2.4, 'opacity=".8"')
    for x, y, s in ((420, 120, 9), (452, 140, 7), (470, 112, 6), (270, 90, 7)):
        c.line(f"M{x - s} {y - s * 0.4}Q{x - s / 2} {y - s} {x} {y}Q{x + s / 2} {y - s} {x + s} {y - s * 0.4}", "#2f4462", 1.6)
    c.vignette(0.3, "#0a1a2a")


def library(c, lit, mood):
    c.sky((0, "#150c0e"), (0.5, "#2b1712"), (1, "#120809"))
    c.glow(300, 300, 380, "#ffab4d", 0.5)
    spines = ["#7a2f2a", "#2f4a5e", "#4a5a34", "#8a6a33", "#5a3560", "#6e3f25", "#264a44", "#93502f", "#3a3a52"]
    for col in range(6):
        x0 = -6 + col * 138
        if col == 3:
            continue  # the window
        for row in range(6):
            y = 16 + row * 66
            c.rect(x0, y - 58, 128, 60, "#0c0506")
            x = x0 + 3
            while x < x0 + 122:
                w, h = c.random.uniform(5, 12), c.random.uniform(36, 54)
                if c.random.random() < 0.07:
                    x += c.random.uniform(8, 22)
                    continue
                light = max(0, 1 - math.hypot(x - 300, y - 330) / 430)
                tone = shade(c.random.choice(spines), -0.72 + 0.78 * light)
                lean = c.random.choice([0, 0, 0, 0, 0, -7, 8])
                c.add(f'<rect x="{x:.1f}" y="{y - h:.1f}" width="{w:.1f}" height="{h:.1f}" fill="{tone}"' +
                      (f' transform="rotate({lean} {x:.0f} {y})"' if lean else "") + "/>")
                if c.random.random() < 0.55:
                    c.rect(x + 1.2, y - h * 0.78, w - 2.4, 1.4, "#e9c98a", f'opacity="{0.12 + 0.6 * light:.2f}"')
                x += w + 0.8
            c.rect(x0 - 4, y, 136, 5, "#3a2015")
            c.rect(x0 - 4, y, 136, 1.2, "#a86a3a", 'opacity=".45"')
        c.rect(x0 + 126, -10, 10, 420, c.across((0, "#2a160f"), (0.5, "#4e2c1b"), (1, "#1b0d09")))
    # A tall window, onto a cavern with a moon of its own.
    c.path("M420 410V120a62 96 0 0 1 124 0V410Z", "#1d100c")
    c.path("M428 410V122a54 86 0 0 1 108 0V410Z", c.down((0, "#16305a"), (0.6, "#3f7aa0"), (1, "#9fd6d0")))
    c.glow(500, 130, 120, "#dff2ff", 0.7)
    c.dot(500, 124, 17, "#f4fbff")
    c.path("M428 330l24 -40l18 22l22 -52l22 46l22 -20V410H428Z", "#14324a", 'opacity=".9"')
    c.line("M482 40V410M428 190H536M428 290H536", "#1d100c", 3)
    c.beam("M440 120H530L620 470H330Z", "#bfe6ff", 0.26)
    c.rect(0, 402, WIDTH, 60, c.down((0, "#2a1610"), (1, "#0b0505")))
    # A ladder, and at the desk the librarian.
    c.line("M652 412L706 20M680 414L734 22", "#3d2416", 4)
    for i in range(1, 12):
        t = i / 12
        c.line(f"M{652 + 54 * t:.0f} {412 - 392 * t:.0f}h28", "#3d2416", 3)
    c.path("M196 346H424V356H414L408 420H392L388 356H232L228 420H212L206 356H196Z", "#170b08")
    c.line("M196 346H424", "#ffb765", 1.6, 'opacity=".75"')
    for x, y, w, tone in ((214, 346, 42, "#5e2a22"), (218, 337, 36, "#3b4a32"), (212, 329, 44, "#6a4a24"), (220, 321, 30, "#2f3f52")):
        c.rect(x, y - 8, w, 8, tone, 'rx="1"')
    c.path("M286 346c-6 -26 2 -44 16 -48c-5 -9 -1 -17 7 -19l-16 -9l20 2c5 -3 12 -3 16 0l20 -3l-15 10c8 3 11 11 6 19c16 5 22 24 18 48Z", "#0e0708")
    for dx in (0, 13):
        c.add(f'<circle cx="{307 + dx}" cy="288" r="5" fill="#ffd98c" fill-opacity=".28" stroke="#f7cf86" stroke-width="1.3"/>')
    c.line("M312 288h3", "#f7cf86", 1.3)
    c.path("M326 330l30 -7l24 8v13l-24 -6l-30 6Z", "#e8d2a4")
    c.line("M356 323v14", "#8a6a3a", 1)
    c.path("M388 346v-20q0 -5 5 -5t5 5v20Z", "#efe2bd")
    c.flame(393, 321, 0.75)
    c.glow(393, 312, 170, "#ffb456", 0.75)
    c.hero(520, 436, 1.3, "#080405", lit, rim="#ffb765")
    c.motes(70, (220, 60, 620, 400), "#ffe3b0", (0.5, 1.4), (0.1, 0.7))
    c.vignette(0.66)


def door(c, lit, mood):
    warm = lit
    c.sky((0, "#0f1418"), (0.5, "#28343a"), (1, "#0d1114"))
    c.glow(400, 190, 400, "#9fd6c9" if not warm else "#ffb877", 0.32)
    for row in range(8):
        for col in range(10):
            x, y = col * 88 - (44 if row % 2 else 0) - 20, row * 46 - 6
            c.rect(x, y, 84, 42, shade("#2e3a40" if not warm else "#3b3530", c.random.uniform(-0.5, -0.28)), 'rx="3"')
    face = c.define("radialGradient", 'cx=".5" cy=".42" r=".62"', [(0, "#8b9a98" if not warm else "#a8937c", 1), (0.6, "#56635f" if not warm else "#6d5a4a", 1), (1, "#232b2a" if not warm else "#2c241e", 1)])
    c.path("M400 30C520 30 566 104 566 190C566 262 552 300 540 366H260C248 300 234 262 234 190C234 104 280 30 400 30Z", "#12181a")
    c.path("M400 40C512 40 556 110 556 190C556 260 542 296 531 366H269C258 296 244 260 244 190C244 110 288 40 400 40Z", face)
    for side in (-1, 1):
        m = lambda x: 400 + side * x
        c.path(f"M{m(26)} 150C{m(60)} 118 {m(110)} 118 {m(134)} 152C{m(110)} 140 {m(66)} 142 {m(26)} 164Z", "#39443f" if not warm else "#4a3c30")
        c.path(f"M{m(40)} 182C{m(60)} 160 {m(104)} 160 {m(122)} 184C{m(104)} 204 {m(60)} 204 {m(40)} 182Z", "#0b1010")
        c.glow(m(82), 182, 52, "#7dffd6", 0.75)
        c.ellipse(m(82), 182, 13, 14, c.round((0, "#f4fff9"), (0.5, "#8effd9"), (1, "#1f8f78")))
        c.ellipse(m(78), 182, 3.6, 11, "#06201a")
        c.line(f"M{m(130)} 226C{m(118)} 262 {m(96)} 276 {m(92)} 300", "#2b3532" if not warm else "#3b2f27", 4, 'opacity=".7"')
        c.line(f"M{m(30)} 70C{m(60)} 76 {m(90)} 88 {m(112)} 108", "#2f3a37" if not warm else "#40342a", 3, 'opacity=".6"')
        c.line(f"M{m(0)} 88C{m(26)} 90 {m(50)} 98 {m(70)} 112", "#2f3a37" if not warm else "#40342a", 2.4, 'opacity=".5"')
    c.path("M386 176C380 220 366 246 372 256C384 266 416 266 428 256C434 246 420 220 414 176Z", "#6f7d78" if not warm else "#8b7560")
    c.path("M372 256C384 266 416 266 428 256C424 272 376 272 372 256Z", "#262f2c")
    # The mouth is the door.
    open_ = mood == "open"
    c.path("M322 366V318C322 290 360 284 400 284C440 284 478 290 478 318V366Z", "#0a0d0d")
    if open_:
        c.path("M330 366V320C330 298 364 292 400 292C436 292 470 298 470 320V366Z", c.down((0, "#ffcf6b"), (1, "#ff9a3c")))
        c.glow(400, 330, 170, "#ffb84d", 0.9, "#fff1c0")
        for side in (-1, 1):
            c.path(f"M{400 + side * 72} 366V318C{400 + side * 72} 306 {400 + side * 66} 300 {400 + side * 60} 297V366Z", "#3a261a")
    else:
        c.path("M330 366V320C330 298 364 292 400 292C436 292 470 298 470 320V366Z", c.across((0, "#3e2a1c"), (0.5, "#6a4a30"), (1, "#3a2619")))
        c.line("M400 292V366M364 296V366M436 296V366", "#24170f", 2)
        c.line("M330 330H470", "#24170f", 3)
        c.add('<circle cx="400" cy="338" r="9" fill="none" stroke="#c9a45c" stroke-width="3"/>')
        c.dot(400, 327, 3.4, "#d8b46a")
    for i in range(4):
        c.path(f"M{300 - i * 34} {366 + i * 14}H{500 + i * 34}l14 14H{286 - i * 34}Z", shade("#3c4644" if not warm else "#4b4038", -0.1 - 0.16 * i))
    for side in (0, 1):
        for _ in range(26):
            x = c.random.uniform(0, 236) if side == 0 else c.random.uniform(564, 800)
            length = c.random.uniform(40, 250) * (1 - abs(x - (110 if side == 0 else 690)) / 260)
            c.line(f"M{x:.0f} -6q{c.random.uniform(-14, 14):.0f} {length / 2:.0f} {c.random.uniform(-8, 8):.0f} {length:.0f}", "#1f3a2c", c.random.uniform(1, 2.6))
            for k in range(int(length / 16)):
                c.ellipse(x + c.random.uniform(-7, 7), k * 16 + c.random.uniform(0, 9), 4, 2.4, c.random.choice(["#2f5a3d", "#3d7048", "#254a35"]),
                          f'transform="rotate({c.random.uniform(-50, 50):.0f} {x:.0f} {k * 16})"')
    c.path("M-10 460V404C90 396 180 420 270 424H530C620 420 710 396 810 404V460Z", "#07090a")
    c.hero(400, 436, 1.15, "#050707", lit, rim="#8effd9" if not open_ else "#ffcf7a")
    c.vignette(0.62)


def mushroom(c, x, y, h, tone, tilt=0):
    w = h * 0.62
    c.glow(x, y - h * 0.9, h * 1.5, tone, 0.5)
    c.add(f'<g transform="rotate({tilt} {x:.0f} {y:.0f})">')
    c.path(f"M{x - h * 0.09:.1f} {y:.1f}C{x - h * 0.05:.1f} {y - h * 0.4:.1f} {x - h * 0.05:.1f} {y - h * 0.6:.1f} {x - h * 0.07:.1f} {y - h * 0.8:.1f}"
           f"H{x + h * 0.07:.1f}C{x + h * 0.05:.1f} {y - h * 0.6:.1f} {x + h * 0.05:.1f} {y - h * 0.4:.1f} {x + h * 0.1:.1f} {y:.1f}Z",
           c.across((0, shade(tone, 0.6)), (0.5, shade(tone, 0.2)), (1, shade(tone, -0.55))))
    c.path(f"M{x - w:.1f} {y - h * 0.74:.1f}C{x - w:.1f} {y - h * 1.12:.1f} {x - w * 0.4:.1f} {y - h * 1.25:.1f} {x:.1f} {y - h * 1.25:.1f}"
           f"C{x + w * 0.4:.1f} {y - h * 1.25:.1f} {x + w:.1f} {y - h * 1.12:.1f} {x + w:.1f} {y - h * 0.74:.1f}"
           f"C{x + w * 0.5:.1f} {y - h * 0.84:.1f} {x - w * 0.5:.1f} {y - h * 0.84:.1f} {x - w:.1f} {y - h * 0.74:.1f}Z",
           c.down((0, shade(tone, 0.72)), (0.45, tone), (1, shade(tone, -0.5))))
    c.path(f"M{x - w:.1f} {y - h * 0.74:.1f}C{x - w * 0.5:.1f} {y - h * 0.84:.1f} {x + w * 0.5:.1f} {y - h * 0.84:.1f} {x + w:.1f} {y - h * 0.74:.1f}"
           f"C{x + w * 0.5:.1f} {y - h * 0.68:.1f} {x - w * 0.5:.1f} {y - h * 0.68:.1f} {x - w:.1f} {y - h * 0.74:.1f}Z", shade(tone, 0.55), 'opacity=".8"')
    for _ in range(5):
        a = c.random.uniform(-0.7, 0.7)
        c.ellipse(x + a * w, y - h * (1.14 - 0.28 * a * a - c.random.uniform(0, 0.16)), h * 0.05, h * 0.032, "#fff", 'opacity=".55"')
    c.add("</g>")


def garden(c, lit, mood):
    c.sky((0, "#070a1c"), (0.45, "#13244a"), (0.8, "#1c4a5a"), (1, "#0a1c26"))
    c.glow(420, 330, 400, "#35d0c0", 0.42)
    c.glow(170, 250, 240, "#9a5cff", 0.3)
    c.ridge(c.outline(300, 30), "#12304a", 'opacity=".9"')
    for i in range(16):
        mushroom(c, c.random.uniform(20, 780), c.random.uniform(300, 318), c.random.uniform(12, 34), c.random.choice(["#3f8fc0", "#4a6fd0", "#3aa6a0"]), c.random.uniform(-8, 8))
    c.mist(270, 90, "#8fe8e0", 0.28)
    for _ in range(22):  # roots
        x = c.random.uniform(-10, 810)
        length = c.random.uniform(50, 190)
        bend = c.random.uniform(-40, 40)
        c.line(f"M{x:.0f} -8C{x + bend:.0f} {length * 0.4:.0f} {x - bend:.0f} {length * 0.7:.0f} {x + bend * 0.4:.0f} {length:.0f}", "#0a1020", c.random.uniform(1.5, 6))
    c.ridge(c.outline(356, 16), "#0b2231")
    for x, y, h, tone, tilt in ((116, 372, 128, "#8a5cf0", -5), (214, 384, 74, "#b07bff", 6), (662, 376, 158, "#2fc9b4", 4), (566, 388, 84, "#46e0c0", -7),
                                (742, 392, 84, "#3fa0f0", 8), (44, 396, 66, "#5f8cff", -9), (486, 380, 40, "#7de8d0", 3), (296, 382, 44, "#c79bff", -4)):
        mushroom(c, x, y, h, tone, tilt)
    front = c.outline(424, 12, left=404, right=400)
    c.ridge(front, "#04101a")
    for _ in range(110):
        x = c.random.uniform(0, WIDTH)
        c.line(f"M{x:.0f} {c.random.uniform(424, 446):.0f}q{c.random.uniform(-5, 5):.1f} -10 {c.random.uniform(-9, 9):.1f} -22", "#062030", 1.6)
    c.hero(398, 430, 1.15, "#030a10", lit, rim="#8ff5e6")
    c.motes(110, (0, 60, 800, 430), "#bffff4", (0.5, 2.1), (0.15, 0.95))
    c.motes(30, (40, 100, 300, 400), "#e0c8ff", (0.7, 2.2), (0.3, 0.9))
    c.vignette(0.55, "#01050c")


def gold(c, points, near):
    """Coins on a heap: those at its top catch the light."""
    for x, y in points:
        tone = c.random.choice(["#ffe08a", "#f5c14e", "#d99a2b", "#b9781d", "#ffefb5", "#8a5716"])
        r = c.random.uniform(2.2, 4.6) * near
        c.ellipse(x, y, r, r * c.random.uniform(0.35, 0.8), tone, f'transform="rotate({c.random.uniform(-40, 40):.0f} {x:.0f} {y:.0f})"')


def hoard(c, lit, mood):
    awake = mood in ("awake", "tea")
    c.sky((0, "#120a10"), (0.5, "#3a1c16"), (1, "#5c2f14"))
    c.glow(420, 360, 440, "#ffb13d", 0.62 if lit or awake else 0.42)
    c.beam("M570 -30h70l70 440h-290Z", "#dfe8ff", 0.4)
    for x in (70, 210, 690):
        c.path(f"M{x - 26} -10C{x - 16} 120 {x - 16} 260 {x - 30} 400H{x + 30}C{x + 16} 260 {x + 16} 120 {x + 26} -10Z", c.across((0, "#12080a"), (0.5, "#3a1e18"), (1, "#12080a")))
    c.spikes(-6, "#0a0507", (24, 90), (14, 36))
    back = c.outline(318, 18, left=380, right=350)
    c.ridge(back, c.down((0, "#c78a2a"), (0.4, "#7a4a17"), (1, "#2a1508")))
    gold(c, [(c.random.uniform(0, 800), c.random.uniform(326, 376)) for _ in range(330)], 0.9)
    # The dragon, curled around what is its own.
    hide = c.define("linearGradient", 'x1="0" y1="0" x2="0" y2="1"', [(0, "#3f8f6a", 1), (0.3, "#1f5a4a", 1), (1, "#0b2222", 1)])
    c.path("M160 372C120 330 148 262 224 236C300 204 420 200 500 226C590 252 636 300 612 352C640 356 676 346 690 322C702 352 668 392 604 388C470 404 260 402 160 372Z", hide)
    spine = [(170 + i * 21, 268 - 58 * math.sin(math.pi * min(i / 20, 1)) + (i * 0.8)) for i in range(20)]
    for i, (x, y) in enumerate(spine):
        h = 10 + 14 * math.sin(math.pi * i / 19)
        c.path(f"M{x - 9:.0f} {y + 12:.0f}L{x + 5:.0f} {y - h:.0f}L{x + 13:.0f} {y + 12:.0f}Z", "#164438")
    for i in range(150):
        a, r = c.random.uniform(0, math.pi * 2), c.random.random() ** 0.5
        x, y = 400 + 200 * r * math.cos(a), 300 + 62 * r * math.sin(a)
        c.line(f"M{x - 6:.0f} {y:.0f}q6 7 12 0", "#7fd8a8", 1, f'opacity="{max(0.05, 0.5 - (y - 250) / 230):.2f}"')
    if awake:
        c.path("M452 262C470 170 540 92 652 62C636 92 640 112 660 134C630 140 616 160 622 186C592 184 574 204 574 234C540 226 500 240 452 262Z", c.down((0, "#2f7a5e"), (1, "#123a34")))
        c.line("M452 262C500 190 560 120 652 62M470 254C530 200 590 150 660 134M500 248C540 220 580 200 622 186", "#0c2a26", 2.4)
    else:
        c.path("M330 240C360 196 440 184 520 210C470 214 452 236 440 268C410 244 370 236 330 240Z", c.down((0, "#2f7a5e"), (1, "#123a34")))
        c.line("M330 240C390 214 450 204 520 210M372 238C410 226 444 216 480 216", "#0c2a26", 2)
    # Its head rests on the gold, or does not.
    hx, hy = (214, 300) if awake else (196, 352)
    c.add(f'<g transform="translate({hx} {hy}) rotate({-14 if awake else 6})">')
    if awake:
        c.path("M20 -20C60 -30 90 0 110 40L40 70C20 40 0 20 -10 6Z", hide)
    c.path("M60 -26C40 -48 2 -46 -24 -30C-62 -18 -98 -14 -108 2C-112 14 -98 22 -76 20C-40 26 10 30 46 16C64 8 70 -12 60 -26Z", c.down((0, "#4aa37a"), (0.55, "#256a54"), (1, "#0e2c29")))
    c.path("M30 -38C44 -62 66 -74 92 -76C76 -62 66 -46 58 -28Z", "#c9b48a")
    c.path("M8 -42C16 -62 32 -74 54 -80C42 -66 36 -52 32 -38Z", "#e2cfa4")
    c.line("M-106 8C-70 12 -20 14 30 4", "#0b2422", 2)
    for x in (-84, -66, -48, -30):
        c.path(f"M{x} 10l4 8l5 -8Z", "#f4ead0")
    c.ellipse(-96, -3, 4, 2.6, "#08201d", 'transform="rotate(-20 -96 -3)"')
    if awake:
        c.ellipse(-10, -18, 13, 9.5, "#0a1d1a")
        c.ellipse(-10, -18, 11, 8, c.round((0, "#fff6b0"), (0.6, "#ffb52e"), (1, "#b8560c")))
        c.ellipse(-11, -18, 2, 7.6, "#160a04")
        c.glow(-10, -18, 48, "#ffb52e", 0.8)
    else:
        c.line("M-24 -15C-14 -9 0 -10 8 -18", "#08201d", 2.6)
    c.add("</g>")
    for i in range(5):
        x, y = hx - 104 - i * 5, hy - 6 - i * 26
        c.line(f"M{x} {y}c-12 -8 10 -14 -2 -24", "#f0e2d4", 3.4 - i * 0.4, f'opacity="{0.42 - i * 0.075:.2f}"')
    c.ridge(c.outline(392, 12, left=372, right=380), c.down((0, "#ffd266"), (0.3, "#b9781d"), (1, "#3a1e08")))
    gold(c, [(c.random.uniform(0, 800), 392 + 62 * c.random.random() ** 1.2) for _ in range(420)], 1.35)
    for x, y in ((112, 404), (330, 410), (486, 402), (706, 412), (610, 428)):
        c.glow(x, y, 24, "#fff3c0", 0.95, "#fff")
    c.path("M92 418l6 -26h28l6 26c-8 10 -32 10 -40 0Z", "#d9a63a")
    c.line("M96 400q14 6 32 0", "#8a5716", 2)
    c.add('<g transform="rotate(18 560 410)"><path d="M548 416v-18l7 8l7 -12l7 12l7 -8v18Z" fill="#ffdc7a"/></g>')
    if mood == "tea":
        c.path("M470 398h46c0 20 -8 30 -23 30s-23 -10 -23 -30Z", "#f4efe6")
        c.line("M516 404c14 -2 14 16 -2 16", "#f4efe6", 4)
        c.ellipse(493, 398, 23, 5, "#7a4a24")
        for dx in (-8, 4):
            c.line(f"M{490 + dx} 388c-6 -10 6 -14 0 -26", "#fff", 2.4, 'opacity=".5"')
    c.hero(650, 430, 1.15, "#0a0504", lit, rim="#ffcf7a")
    c.motes(60, (120, 100, 700, 380), "#ffd98c", (0.5, 1.6), (0.15, 0.8))
    c.vignette(0.6)


def tower(c, lit, mood):
    ringing = mood == "ringing"
    c.sky((0, "#060a22"), (0.4, "#1a2560"), (0.72, "#5a4a94"), (0.9, "#c47aa0"), (1, "#f0b08a"))
    c.stars(200, 330)
    c.glow(610, 110, 200, "#dfe6ff", 0.6)
    c.dot(610, 110, 34, c.round((0, "#ffffff"), (0.8, "#eef1ff"), (1, "#cdd6f5")))
    for x, y, r in ((600, 102, 6), (622, 118, 8), (612, 96, 3), (598, 122, 4)):
        c.dot(x, y, r, "#c3cdec", 'opacity=".5"')
    c.ridge(c.outline(352, 44), "#4a3f7c", 'opacity=".85"')
    c.mist(330, 80, "#f2b3a0", 0.4)
    low = c.outline(392, 22)
    c.ridge(low, "#241f4a")
    c.pines(low, "#241f4a", (8, 20), 0.5)
    # Three arches, open to the night; their stone is nearest.
    stone = c.across((0, "#14101e"), (0.5, "#2a2238"), (1, "#120e1a"))
    arches = "".join(f"M{x} 420V170a{w / 2} {w * 0.62} 0 0 1 {w} 0V420Z" for x, w in ((60, 150), (262, 276), (590, 150)))
    c.path("M-10 -10H810V460H-10Z" + arches, stone, 'fill-rule="evenodd"')
    for x, w in ((60, 150), (262, 276), (590, 150)):
        c.line(f"M{x} 420V170a{w / 2} {w * 0.62} 0 0 1 {w} 0V420", "#8f86c4", 2, 'opacity=".5"')
        for k in range(13):
            a = math.pi * (k + 0.5) / 13
            x0, y0 = x + w / 2 - (w / 2 + 3) * math.cos(a), 170 - (w * 0.62 + 3) * math.sin(a)
            x1, y1 = x + w / 2 - (w / 2 + 20) * math.cos(a), 170 - (w * 0.62 + 20) * math.sin(a)
            c.line(f"M{x0:.0f} {y0:.0f}L{x1:.0f} {y1:.0f}", "#0a0810", 1.6, 'opacity=".8"')
    c.beam("M610 90L560 470H250Z", "#dfe6ff", 0.3)
    c.rect(-10, 414, 820, 46, c.down((0, "#3a3050"), (1, "#0c0914")))
    c.line("M0 415H800", "#b8aee6", 1.4, 'opacity=".45"')
    c.rect(240, 62, 320, 15, "#1b1210")
    c.rect(240, 62, 320, 3, "#6a4a34")
    # The bell.
    c.glow(400, 220, 230 if ringing else 150, "#ffca6b", 0.75 if ringing else 0.35)
    if ringing:
        for r in (120, 160, 204, 250):
            c.add(f'<circle cx="400" cy="232" r="{r}" fill="none" stroke="#ffe2a0" stroke-width="2.4" opacity="{0.62 - r / 480:.2f}"/>')
    c.add(f'<g transform="rotate({-13 if ringing else 0} 400 76)">')
    bronze = c.across((0, "#3a1f0c"), (0.22, "#a86a26"), (0.38, "#ffe0a0"), (0.55, "#c07c2c"), (0.8, "#5e3514"), (1, "#2a1608"))
    c.path("M386 76h28v14h-28Z", "#4a2c14")
    c.ellipse(400, 306 - 8, 13, 15, "#2a1608")
    c.path("M400 88C432 88 446 106 450 142C455 196 462 246 494 286H306C338 246 345 196 350 142C354 106 368 88 400 88Z", bronze)
    c.path("M306 286H494C498 292 498 298 490 300H310C302 298 302 292 306 286Z", c.across((0, "#2a1608"), (0.38, "#ffe6b0"), (0.6, "#9a5e20"), (1, "#241206")))
    for y, half in ((152, 52), (160, 53), (252, 70)):
        c.line(f"M{400 - half} {y}Q400 {y + 9} {400 + half} {y}", "#4e2c10", 2, 'opacity=".7"')
    c.add('<text x="400" y="216" font-family="Georgia,serif" font-size="15" letter-spacing="3" fill="#5a3312" text-anchor="middle" opacity=".85">SVRGE</text>')
    c.add("</g>")
    c.line(f"M{430 if ringing else 412} 306C{440 if ringing else 418} 350 448 372 446 404", "#c9ab7a", 3)
    c.hero(462, 430, 1.25, "#070510", lit, torch=True, rim="#c9d4ff")
    c.vignette(0.5, "#04020c")


def dawn(c, lit, mood):
    c.sky((0, "#3f6fb0"), (0.3, "#86a9d0"), (0.55, "#f6c9a8"), (0.72, "#ffe3a8"), (0.82, "#fff3cf"))
    c.glow(400, 322, 460, "#fff0b8", 0.95)
    for i in range(18):
        a = math.pi + math.pi * (i + 0.5) / 18
        c.path(f"M400 322L{400 + 700 * math.cos(a - 0.04):.0f} {322 + 700 * math.sin(a - 0.04):.0f}L{400 + 700 * math.cos(a + 0.04):.0f} {322 + 700 * math.sin(a + 0.04):.0f}Z",
               "#fff6d0", 'opacity=".13"')
    c.dot(400, 318, 46, c.round((0, "#ffffff"), (0.75, "#fff6cf"), (1, "#ffe49a")))
    for x, y, rx, ry in ((130, 90, 100, 15), (190, 78, 70, 18), (95, 100, 70, 10), (640, 122, 110, 13), (700, 110, 70, 16), (420, 60, 80, 8)):
        c.ellipse(x, y, rx, ry, "#fff", 'opacity=".55"')
        c.ellipse(x + 8, y + 6, rx * 0.8, ry * 0.5, "#ffd7b0", 'opacity=".6"')
    c.ridge(c.outline(320, 40, left=280, right=270), "#b59aae", 'opacity=".9"')
    c.mist(300, 80, "#fff0cc", 0.6)
    mid = c.outline(350, 24, left=330, right=322)
    c.ridge(mid, c.down((0, "#8a9a70"), (1, "#5f7a58")))
    c.pines(mid, "#6b8560", (8, 18), 0.6)
    # The bell is back where it was.
    c.path("M612 352v-66h-4l20 -26l20 26h-4v66Z", "#4a4250")
    c.path("M620 312v-14a8 9 0 0 1 16 0v14Z", "#fff0c0")
    c.path("M624 310c1 -8 2 -12 4 -12s3 4 4 12Z", "#8a5a20")
    c.line("M608 286l20 -26l20 26", "#ffdf9c", 1.4)
    village(c, 500, 366, "#fff3c8", "#5b4a56")
    village(c, 640, 374, "#fff3c8", "#514250")
    c.mist(346, 60, "#ffeec4", 0.4)
    low = c.outline(388, 14, left=372, right=380)
    c.ridge(low, c.down((0, "#5f8a4e"), (1, "#2f5a3a")))
    c.pines(low, "#3a6340", (14, 30), 0.4, (0, 300))
    c.line("M330 460C350 424 430 420 470 396C500 380 520 378 560 372", "#f2dcae", 9, 'opacity=".75"')
    if mood == "dragon":
        c.add('<g transform="translate(-36 -14) scale(1.18)">')
        c.path("M336 156C346 116 372 86 416 66C408 86 408 98 416 112C402 110 394 118 392 132C380 130 366 138 358 154Z", "#4f8270")
        c.path("M206 172C240 170 262 166 286 160C310 152 330 150 348 152C364 150 376 140 386 132C394 125 408 125 420 131L434 139L418 142"
               "C408 144 400 148 392 156C380 170 356 177 334 175C308 177 284 174 262 178C246 182 226 182 206 172Z", "#2f5a4e")
        c.path("M212 174l-20 -10l5 10l-9 10Z", "#2f5a4e")
        c.path("M318 160C308 120 282 82 228 60C242 82 244 96 238 110C252 108 264 116 266 130C280 126 290 136 294 154Z", "#3a6a5a")
        c.line("M318 160C296 130 272 108 238 110M318 160C300 140 284 130 266 130M318 160C306 116 280 82 228 60", "#21463c", 1.6)
        c.path("M398 128l-12 -11l16 6Z", "#e2cfa4")
        c.path("M330 174l-8 12l10 -4l2 6l6 -13ZM286 174l-10 9l10 -1l1 6l6 -13Z", "#2f5a4e")
        c.dot(414, 133, 1.4, "#ffd98c")
        c.add("</g>")
    for x, y, s in ((520, 120, 9), (548, 136, 7), (566, 112, 6), (150, 190, 7), (172, 178, 6)):
        c.line(f"M{x - s} {y - s * 0.4}Q{x - s / 2} {y - s} {x} {y}Q{x + s / 2} {y - s} {x + s} {y - s * 0.4}", "#4a4a62", 1.7)
    front = c.outline(428, 8, left=412, right=424)
    c.ridge(front, "#1d3d2a")
    for _ in range(240):
        x = c.random.uniform(0, WIDTH)
        c.line(f"M{x:.0f} {c.random.uniform(428, 452):.0f}q{c.random.uniform(-4, 4):.1f} -10 {c.random.uniform(-8, 8):.1f} -20", c.random.choice(["#1d3d2a", "#2c5a38", "#245030"]), 1.7)
    for _ in range(46):
        x, y = c.random.uniform(0, WIDTH), c.random.uniform(408, 446)
        c.dot(x, y, c.random.uniform(1.3, 2.6), c.random.choice(["#fff4d0", "#ffd0d8", "#ffe07a", "#ff9a8a"]))
    c.hero(330, 430, 1.2, "#1a2430", False, torch=False, rim="#fff0b8")
    c.vignette(0.22, "#2a1a10")


SCENES = {
    "hill": (hill, "A round door in a hill, and a sign"),
    "hall": (hall, "A hall under the hill"),
    "bridge": (bridge, "A bridge, most of it"),
    "river": (river, "A river that nobody has drawn on a map"),
    "library": (library, "The lending library"),
    "door": (door, "A door with a face"),
    "garden": (garden, "A garden that needs no sun"),
    "hoard": (hoard, "The hoard, and its owner"),
    "tower": (tower, "The bell"),
    "dawn": (dawn, "Morning"),
}


def paint(scene, lit=False, mood=""):
    draw, title = SCENES[scene]
    canvas = Canvas(scene)
    draw(canvas, lit, mood)
    return canvas.svg(title), title


def emit(event_type, **fields):
    print(json.dumps({"version": "0", "type": event_type, **fields}), flush=True)


def main():
    request = json.load(sys.stdin)["input"]
    scene = request["scene"]
    emit("log", level="info", message=f"Mixing the colours for the {scene}")
    svg, title = paint(scene, bool(request.get("lit")), request.get("mood") or "")
    handle, path = tempfile.mkstemp(prefix=f"{scene}-", suffix=".svg")
    with os.fdopen(handle, "w") as f:
        f.write(svg)
    emit("asset", assetId=scene, kind="image", mediaType="image/svg+xml", path=path,
         metadata={"title": title, "width": WIDTH, "height": HEIGHT})
    emit("done", ok=True, summary=title, output={"scene": scene, "title": title})


if __name__ == "__main__":
    main()
