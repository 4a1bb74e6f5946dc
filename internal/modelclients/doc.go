// Package modelclients tests the door for models with the official clients of OpenAI and Anthropic. It stands apart from
// the door, since these clients take long to compile.
package modelclients
