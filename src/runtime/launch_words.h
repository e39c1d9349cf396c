// SPDX-License-Identifier: Apache-2.0
// launch_words.h - what processes tell each other about a run of a program: bytes from the network.
//
// A word announces a run: which program, and which of its arguments this process holds whole. A
// part is a device's part of an argument, in the body. A failure is an argument that is an error.
#ifndef VT_RUNTIME_LAUNCH_WORDS_H
#define VT_RUNTIME_LAUNCH_WORDS_H

#include "base/file.h"
#include "base/text.h"

typedef enum vt_word_kind {
  VT_WORD_LAUNCH = 1,
  VT_WORD_PART,
  VT_WORD_FAILURE,
  VT_WORD_ANSWER, // of a host callback
  VT_WORD_BLOCK,  // of a collective: index = the meeting
  VT_WORD_READY,  // for a large block
  VT_WORD_WANT,   // a single array (crossing_transfers.c)
  VT_WORD_ARRAY,
  VT_WORD_NO_ARRAY // it is an error
} vt_word_kind;

typedef struct vt_word {
  vt_word_kind kind;
  uint64_t group, number; // of processes; of their run
  // launch:
  uint64_t fingerprint, variant; // of the program; of the arguments that differ between devices
  uint32_t param_count;
  const uint8_t *agreed; // [param_count] numbers of 8 bytes: vt_storage
  // part, answer: parameter or channel, and the device's position; array: key, receiving device;
  // launch: kind of the program
  uint64_t index;
  uint32_t position;
  uint32_t code; // failure; array: sending device
  vt_bytes text; // launch: name of the program; failure: message
} vt_word;

enum { VT_WORD_TEXT = 1024 };

// The text is cut after VT_WORD_TEXT bytes.
void vt_word_write(const vt_word *word, vt_text *out);
// Borrows from `bytes`. errors INVALID_ARGUMENT
vt_status vt_word_read(vt_bytes bytes, vt_word *out_word) VT_CHECKED;
uint64_t vt_word_agreed(const vt_word *word, uint32_t param);

#endif
