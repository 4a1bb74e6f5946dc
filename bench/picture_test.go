package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"toolpost/internal/kit"
)

func samplePoints() []point {
	return []point{
		{curve: curveTools, size: 10, rate: 16_000, first: 16_000, p99: 2.1},
		{curve: curveTools, size: 1_000, rate: 15_600, first: 16_000, p99: 2.2},
		{curve: curveTools, size: 10, rate: 8_000, first: 8_000, p99: 2.3}, // the machine became busy
		{curve: curveTools, size: 10_000, rate: 7_700, first: 8_000, p99: 2.4},
		{curve: curveSessions, size: 1, rate: 9_800, p99: 3}, {curve: curveSessions, size: 100, rate: 9_700, p99: 3.2},
		{curve: curveSessions, size: 10_000, rate: 9_100, p99: 3.6},
		{curve: curveRecord, size: 10_000, rate: 12_000, p99: 5.7},
		{curve: curveRecord, size: 1_000_000, rate: 11_200, p99: 5.9},
		{curve: curveOutput, size: 1 << 10, rate: 10_000, memory: 8 << 20},
		{curve: curveOutput, size: 1 << 20, rate: 200, memory: 17 << 20},
		{curve: curveOutput, size: 64 << 20, rate: 2, memory: 120 << 20},
	}
}

func TestPictureIsWellFormedAndSaysWhatWasMeasured(t *testing.T) {
	svg := growth(samplePoints()).SVG()
	for dec := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{
		">12 k/s<", ">11.7 k/s<", ">11.6 k/s<", ">p99 2.2 ms<", ">10,000<", ">1,000,000<", ">64 MiB<", ">120 MiB<", ">1 KiB<",
		"prefers-color-scheme: dark", "target: 0.8 of the first", "target: twice the output + 16 MiB",
	} {
		kit.Contains(t, svg, want)
	}
	for _, bad := range []string{"NaN", "Inf", "%!"} {
		if strings.Contains(svg, bad) {
			t.Errorf("%s is in the picture", bad)
		}
	}
	if path := os.Getenv("BENCH_PICTURE"); path != "" { // to look at it
		kit.OK(t, growth(samplePoints()).Draw(path))
	}
}

func TestPictureOfNothing(t *testing.T) {
	if svg := growth(nil).SVG(); strings.Count(svg, "not measured") != 4 {
		t.Errorf("a picture without points: %s", svg)
	}
}

func TestIncompletePartIsNotDrawn(t *testing.T) {
	rep := newReport()
	var failed error
	for _, m := range measurements() {
		if m.part != "growth" {
			continue
		}
		if rep.whole("growth") {
			t.Fatalf("whole before %s", m.name)
		}
		rep.add(m, row{}, failed, 0)
	}
	if !rep.whole("growth") {
		t.Error("all rows were measured")
	}
	rep.Rows[0].Verdict = broken
	if rep.whole("growth") {
		t.Error("a row failed")
	}
}
