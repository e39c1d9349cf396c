// SPDX-License-Identifier: Apache-2.0
// schema.h - the messages of the Cloud TPU API as tables: what a request may contain, and how
// fields map to protobuf.
//
// The rows are schema.def. Nothing here keeps memory; JSON belongs to the caller. thread: any.
#ifndef VT_CLOUD_SCHEMA_H
#define VT_CLOUD_SCHEMA_H

#include <jansson.h>
#include <stdbool.h>

#include "base/status.h"
#include "base/text.h"

typedef enum vt_api { VT_API_V1 = 1, VT_API_V2 = 2, VT_API_V2A = 4, VT_API_V1A = 8 } vt_api;
// Versions that other services have but Cloud TPU does not: v1alpha, v1beta.
enum { VT_API_V1_EARLY = 16 };
#define VT_API_ALL 15u

typedef enum vt_field_kind {
  VT_FIELD_STRING,
  VT_FIELD_BOOL,
  VT_FIELD_INT32,
  VT_FIELD_INT64,
  VT_FIELD_BYTES,
  VT_FIELD_TIME,
  VT_FIELD_DURATION,
  VT_FIELD_MASK,
  VT_FIELD_MAP,
  VT_FIELD_ANY,
  VT_FIELD_ENUM,
  VT_FIELD_MSG,
  VT_FIELD_MESSAGE_ROW,
  VT_FIELD_ENUM_ROW,
  VT_FIELD_VALUE_ROW // the rows that open and fill the groups
} vt_field_kind;
enum { VT_FIELD_REP = 1, VT_FIELD_OUT = 2 };

typedef struct vt_field {
  const char *name;
  int number;
  vt_field_kind kind;
  const char *ref;
  unsigned flags, versions;
} vt_field;
// A message (an enumeration) is the row that opens it; its fields (values) are the rows after it.
typedef vt_field vt_message;
typedef vt_field vt_enumeration;

const vt_message *vt_message_find(const char *name); // NULL when unknown
// The row after `row` in the same message or enumeration; start with the message itself. NULL at
// the end.
const vt_field *vt_message_next(const vt_field *row);
const vt_message *vt_message_at(int index); // the index-th message, NULL past the last
const vt_field *vt_message_field(const vt_message *message, const char *name, unsigned api);
const vt_field *vt_message_field_by_number(const vt_message *message, int number, unsigned api);
const vt_enumeration *vt_enumeration_find(const char *name);
const char *vt_enum_name(const vt_enumeration *enumeration, int number); // NULL when unknown
bool vt_enum_number(const vt_enumeration *enumeration, const char *name, int *out_number);

// A clean copy of `in` as `message`: names become lowerCamel, enums names, integers and times
// canonical; output-only and unknown fields are dropped; a single object is accepted for a list of
// one. errors  INVALID_ARGUMENT naming the field, for a value of the wrong type
vt_status vt_schema_clean(const vt_message *message, unsigned api, const json_t *in,
                          json_t **out_json) VT_CHECKED;
// A line for each name in `in` that is no field of the message, in the words of the real API; `at`
// is the place of `in` in the request, "" the request itself.
void vt_schema_unknown(const vt_message *message, unsigned api, const char *at, const json_t *in,
                       vt_text *out_lines);
// Removes from `reply` the fields that the version does not have, and turns enums into numbers on
// request. In place.
void vt_schema_shape(const vt_message *message, unsigned api, bool enums_as_numbers, json_t *reply);
// The version in "type.googleapis.com/google.cloud.tpu.v2.Node", since a message inside an Any has
// the fields of its own version; `otherwise` when the type names none.
unsigned vt_schema_api_of_type(const char *type, unsigned otherwise);
// Keeps only what a `fields=` selector names ("nodes(name,state),nextPageToken"). In place; a bad
// selector keeps all.
void vt_schema_select(const char *selector, json_t *reply);

// RFC 3339 with up to nanoseconds <-> nanoseconds since 1970; "3.5s" <-> nanoseconds.
bool vt_time_parse(const char *text, int64_t *out_ns);
void vt_time_format(int64_t ns, char out_text[40]);
bool vt_duration_parse(const char *text, int64_t *out_ns);
void vt_duration_format(int64_t ns, char out_text[40]);
// A decimal integer, no more; false for anything else and over 64 bits.
bool vt_integer_parse(const char *text, int64_t *out_value);
// An integer in JSON: a number or, as clients write an int64, a string. False for anything else and
// for values outside 64 bits.
bool vt_json_integer(const json_t *value, int64_t *out_value);

#endif
