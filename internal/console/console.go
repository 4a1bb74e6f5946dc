// Package console tests the console in a real browser, and makes its pictures.
package console
