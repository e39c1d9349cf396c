// SPDX-License-Identifier: Apache-2.0
// command_rows_end.h - see command_rows.h.
#undef GROUP
#undef COMMAND
#undef FLAG
#undef MANY
#undef LETTER
#undef NUMBER
