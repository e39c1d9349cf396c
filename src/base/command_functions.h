// SPDX-License-Identifier: Apache-2.0
// command_functions.h - like command_rows.h, but each COMMAND row becomes {name, function} and the
// other rows nothing.
#define GROUP(name, help)
#define COMMAND(name, function, words, least, most, help) {name, function},
#define FLAG(name, kind, value, help)
#define MANY(name, kind, value, help)
#define LETTER(letter, name, kind, value, help)
#define NUMBER(name, value, least, most, help)
