// SPDX-License-Identifier: Apache-2.0
// command_rows.h - the macros of a command table: included before a .def between the braces of an
// array of vt_command_row, it makes the rows. command_functions.h does the same for the functions.
// command_rows_end.h undefines the macros of both.
#define GROUP(name, help) {VT_COMMAND_GROUP, name, "", help, 0, 0, 0, false},
#define COMMAND(name, function, words, least, most, help)                                          \
  {VT_COMMAND_WORD, name, words, help, least, most, 0, false},
#define FLAG(name, kind, value, help) {VT_FLAG_##kind, name, value, help, 0, 0, 0, false},
#define MANY(name, kind, value, help) {VT_FLAG_##kind, name, value, help, 0, 0, 0, true},
#define LETTER(letter, name, kind, value, help)                                                    \
  {VT_FLAG_##kind, name, value, help, 0, 0, letter, false},
#define NUMBER(name, value, least, most, help)                                                     \
  {VT_FLAG_NUMBER, name, value, help, least, most, 0, false},
