// SPDX-License-Identifier: Apache-2.0
// program.h - a program to compare: a module and a short description of its main's inputs.
//
// The same seed gives the same program and the same inputs on every machine. As text a program is
// StableHLO whose first line names its inputs ("// inputs: hard:1 range:2:0:7"), so a file can be
// run again and made smaller. Threads: any; nothing is shared.
#ifndef VT_FUZZ_PROGRAM_H
#define VT_FUZZ_PROGRAM_H

#include "ir/module.h"

// How the elements of an input are drawn.
//     style     text
#define VALUE_STYLES(STYLE)                                                                        \
  STYLE(HARD, "hard")         /* zeros, infinities, NaN, subnormals, extremes, ties, ordinary */   \
  STYLE(NUMBER, "number")     /* as hard, without NaN */                                           \
  STYLE(GRID, "grid")         /* small multiples of 1/4: sums are exact in any order */            \
  STYLE(SMOOTH, "smooth")     /* uniform in [-2, 2]: for linear algebra */                         \
  STYLE(RANGE, "range")       /* integers from low to high */                                      \
  STYLE(DEFINITE, "definite") /* symmetric matrices with a large diagonal */
enum {
#define STYLE(name, text) VALUE_##name,
  VALUE_STYLES(STYLE)
#undef STYLE
      VALUE_STYLE_COUNT
};

typedef struct program_input {
  int style;
  uint64_t stream; // of random numbers
  int64_t low, high;
} program_input;

enum { PROGRAM_MAX_INPUTS = 64 };
typedef struct program {
  vt_module *module;
  uint64_t seed;
  program_input inputs[PROGRAM_MAX_INPUTS]; // of main's parameters
} program;

// Makes the program of a seed; `ops` is the approximate number of ops.
void program_generate(uint64_t seed, int ops, program *out_program);
// The same with a mesh of 2 to 16 devices, manual computations and collectives.
void program_generate_mesh(uint64_t seed, int ops, program *out_program);
// The same, sharded automatically: constraints on values, sizes that do not divide, few manual
// computations.
void program_generate_sharded(uint64_t seed, int ops, program *out_program);
// Adds the same program to a module that contains several: its functions are named `name`, `name`_1
// and so on; returns the first. Inputs as from program_generate.
vt_func *program_generate_into(vt_module *module, const char *name, uint64_t seed, int ops,
                               program_input *inputs);
// A program of one op on elements of one type. false: the generator declined.
bool program_of_op(vt_opcode code, vt_dtype dtype, uint64_t seed, program *out_program);
void program_destroy(program *program);

// Text with the line of inputs, and back. errors: as import; INVALID_ARGUMENT for the line.
void program_print(const program *program, vt_text *out_text);
vt_status program_parse(const char *text, size_t size, program *out_program) VT_CHECKED;

// Fills `data` (dense, vt_type_bytes) with an input's elements.
void program_fill(program_input input, vt_type type, void *data);

// Random numbers: a separate stream for each seed.
uint64_t random_next(uint64_t *state);
int64_t random_below(uint64_t *state, int64_t limit); // 0 when limit <= 1

#endif
