// Package console has the tests of the console in a real browser, and makes its pictures.
package console
