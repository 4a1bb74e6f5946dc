// Package modelclients tests the door for models with the official clients of OpenAI and Anthropic. It is separate from
// the door because these clients take long to compile.
package modelclients
