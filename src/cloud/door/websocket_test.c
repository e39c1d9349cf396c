// SPDX-License-Identifier: Apache-2.0
// websocket_test.c - frames of RFC 6455 and of the tunnels in them, both sides against each other
// and against a hostile peer; who may open which tunnel.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cloud/cloud_testing.h"
#include "cloud/door/tunnel.h"

static vt_ws_opcode take(vt_websocket *ws, const void *bytes, size_t size) {
  size_t used;
  return vt_websocket_read(ws, bytes, size, &used);
}

static void the_handshake_is_that_of_the_rfc(void **state) {
  char accept[32], key[32];
  (void)state;
  assert_true(vt_websocket_accept_key("dGhlIHNhbXBsZSBub25jZQ==", accept)); // its section 1.3
  assert_string_equal(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
  vt_websocket_new_key(key);
  assert_true(vt_websocket_accept_key(key, accept));
  assert_false(vt_websocket_accept_key(NULL, accept));
  assert_false(vt_websocket_accept_key("dGhlIHNhbXBsZSBub25jZQ", accept));
  assert_false(vt_websocket_accept_key("dGhlIHNhbXBsZSBub25jZQQ=", accept));
  assert_false(vt_websocket_accept_key("dGhlIHNhbXBsZSBub25!!Q==", accept));
}

static void messages_cross(void **state) {
  static const size_t sizes[] = {0, 1, 125, 126, 65535, 65536, 200000};
  (void)state;
  for (int side = 0; side < 2; side++) {
    vt_websocket from = {.client = side == 0, .max_message = 1 << 20},
                 to = {.client = side == 1, .max_message = 1 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      char *bytes = malloc(sizes[i] + 1);
      for (size_t b = 0; b < sizes[i]; b++) bytes[b] = (char)(b * 7 + i);
      vt_websocket_send(&from, VT_WS_PING, "who", 3);
      vt_websocket_send(&from, VT_WS_BINARY, bytes, sizes[i]);
      vt_ws_opcode event = VT_WS_NONE;
      while (vt_websocket_pending(&from)) { // in pieces of 1000
        size_t n = vt_websocket_pending(&from), used;
        if (n > 1000) n = 1000;
        event = vt_websocket_read(&to, (uint8_t *)from.out.data + from.out_at, n, &used);
        vt_websocket_sent(&from, used);
      }
      assert_int_equal(event, VT_WS_BINARY);
      assert_int_equal(to.message.size, sizes[i]);
      assert_memory_equal(vt_text_string(&to.message), bytes, sizes[i]);
      assert_int_equal(vt_websocket_pending(&to), side == 0 ? 5 : 9); // the reply to the ping
      assert_int_equal(take(&from, to.out.data + to.out_at, vt_websocket_pending(&to)), VT_WS_NONE);
      vt_websocket_sent(&to, vt_websocket_pending(&to));
      free(bytes);
    }
    vt_websocket_close(&from, VT_WS_NORMAL, "done");
    assert_int_equal(take(&to, from.out.data + from.out_at, vt_websocket_pending(&from)),
                     VT_WS_CLOSE);
    assert_int_equal(to.close_code, VT_WS_NORMAL);
    vt_websocket_fini(&from);
    vt_websocket_fini(&to);
  }
}

// A client's input, masked with zeros, and the expected close code.
#define MASK "\0\0\0\0"
static const struct wrong {
  const char *why, *bytes;
  size_t size;
  uint16_t code;
} wrongs[] = {
#define WRONG(why, bytes, code) {why, bytes, sizeof bytes - 1, code}
    WRONG("unmasked", "\x82\x01x", 1002),
    WRONG("reserved bits", "\xc2\x81" MASK "x", 1002),
    WRONG("opcode 3", "\x83\x81" MASK "x", 1002),
    WRONG("opcode 11", "\x8b\x80" MASK, 1002),
    WRONG("a ping in parts", "\x09\x80" MASK, 1002),
    WRONG("a long ping", "\x89\xfe\x00\x7e" MASK, 1002),
    WRONG("a length longer than it has to be", "\x82\xfe\x00\x05" MASK "xxxxx", 1002),
    WRONG("a length with its sign", "\x82\xff\x80\x00\x00\x00\x00\x00\x00\x05" MASK, 1002),
    WRONG("too much", "\x82\xff\x00\x00\x00\x00\x10\x00\x00\x00" MASK, 1009),
    WRONG("too much in parts", "\x02\x81" MASK "x\x80\xff\x00\x00\x00\x00\x00\x10\x00\x00" MASK,
          1009),
    WRONG("a rest of nothing", "\x80\x81" MASK "x", 1002),
    WRONG("a second beginning", "\x02\x81" MASK "x\x82\x81" MASK "x", 1002),
    WRONG("text that is none", "\x81\x82" MASK "\xc3\x28", 1007),
    WRONG("a surrogate", "\x81\x83" MASK "\xed\xa0\x80", 1007),
    WRONG("half a close code", "\x88\x81" MASK "\x03", 1002),
    WRONG("a close code of nobody", "\x88\x82" MASK "\x03\xed", 1002),
    WRONG("a close reason that is no text", "\x88\x83" MASK "\x03\xe8\xff", 1007)};

static void a_wrong_frame_closes(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
    vt_websocket ws = {.max_message = 1 << 20};
    vt_ws_opcode event = take(&ws, wrongs[i].bytes, wrongs[i].size);
    if (event != VT_WS_CLOSE || ws.close_code != wrongs[i].code)
      fail_msg("%s: event %d, code %d", wrongs[i].why, (int)event, (int)ws.close_code);
    assert_true(ws.closed && ws.out.size >= 4 && (uint8_t)ws.out.data[0] == 0x88);
    assert_int_equal((uint8_t)ws.out.data[2] << 8 | (uint8_t)ws.out.data[3], wrongs[i].code);
    size_t size = ws.out.size;
    vt_websocket_send(&ws, VT_WS_TEXT, "more", 4);
    assert_int_equal(ws.out.size, size);
    vt_websocket_fini(&ws);
  }
}

static void pings_alone_do_not_fill_memory(void **state) {
  vt_websocket ws = {.max_message = 1000};
  (void)state;
  for (int i = 0; i < 100000; i++)
    assert_int_equal(take(&ws, "\x89\x84" MASK "abcd", 10), VT_WS_NONE);
  assert_true(vt_websocket_pending(&ws) < (128 << 10));
  vt_websocket_fini(&ws);
}

// --- tunnels -------------------------------------------------------------------------------------

// Passes all frames of one end to the other; false when that finds one invalid.
static bool cross(vt_websocket *from, vt_tunnel *tunnel, vt_websocket *to, bool server) {
  while (vt_websocket_pending(from)) {
    size_t used;
    vt_ws_opcode event = vt_websocket_read(to, (uint8_t *)from->out.data + from->out_at,
                                           vt_websocket_pending(from), &used);
    vt_websocket_sent(from, used);
    if (event != VT_WS_NONE && !vt_tunnel_take(tunnel, to, event, server)) return false;
  }
  return true;
}

static void a_tunnel_goes_on_where_it_broke(void **state) {
  enum { MAX = 6 + VT_TUNNEL_DATA_MAX, SIZE = 100000 };
  vt_websocket here = {.max_message = MAX}, there = {.client = true, .max_message = MAX};
  vt_tunnel server = {.sid = "name"}, client = {0};
  char *bytes = calloc(1, SIZE);
  (void)state;
  for (size_t i = 0; i < SIZE; i++) bytes[i] = (char)(i % 251);
  vt_tunnel_open(&server, &here);
  assert_true(cross(&here, &client, &there, false));
  assert_string_equal(client.sid, "name");
  vt_tunnel_send(&server, &here, bytes, SIZE);
  assert_true(cross(&here, &client, &there, false));
  assert_memory_equal(client.in.data, bytes, SIZE);
  assert_true(cross(&there, &server, &here, true)); // acknowledgements
  assert_true(server.acked >= SIZE - VT_TUNNEL_ACK_EVERY && server.acked <= SIZE);
  // The next part is lost with the connection and resent on the next one, on either side.
  vt_tunnel_send(&server, &here, bytes, 5000);
  vt_tunnel_send(&client, &there, bytes, 7000);
  assert_true(cross(&there, &server, &here, true));
  assert_int_equal(server.received, 7000);
  vt_tunnel_send(&client, &there, bytes, SIZE);
  vt_websocket_fini(&here);
  vt_websocket_fini(&there);
  here = (vt_websocket){.max_message = MAX};
  there = (vt_websocket){.client = true, .max_message = MAX};
  vt_tunnel_lost(&client);
  assert_false(client.open);
  assert_false(vt_tunnel_reopen(&server, &here, SIZE + 5001));
  assert_false(vt_tunnel_reopen(&server, &here, server.acked - 1));
  assert_true(vt_tunnel_reopen(&server, &here, client.received));
  assert_int_equal(here.out.data[3], 2); // its first frame is the count
  assert_true(cross(&here, &client, &there, false));
  assert_true(client.open);
  assert_int_equal(client.received, SIZE + 5000);
  assert_memory_equal(client.in.data + SIZE, bytes, 5000);
  assert_true(cross(&there, &server, &here, true));
  assert_int_equal(server.received, 7000 + SIZE);
  assert_memory_equal(server.in.data + 7000, bytes, SIZE);
  vt_websocket_sent(&here, vt_websocket_pending(&here));
  // Without acknowledgements the amount kept is bounded.
  size_t room;
  while ((room = vt_tunnel_room(&server, &here))) {
    vt_tunnel_send(&server, &here, bytes, room < SIZE ? room : SIZE);
    vt_websocket_sent(&here, vt_websocket_pending(&here));
  }
  assert_true(server.unacked.size - server.unacked_at <= VT_TUNNEL_WINDOW);
  free(bytes);
  vt_websocket_fini(&here);
  vt_websocket_fini(&there);
  vt_tunnel_fini(&server);
  vt_tunnel_fini(&client);
}

// The count sent to a reconnecting client can be wrong, too.
static void a_wrong_count_closes(void **state) {
  static const struct wrong rows[] = {
      WRONG("more than was sent", "\x00\x02\x00\x00\x00\x00\x00\x00\x00\x11", VT_TUNNEL_BAD_ACK),
      WRONG("short", "\x00\x02\x00", VT_TUNNEL_BAD_DATA)};
  (void)state;
  for (int open = 0; open < 2; open++)
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
      vt_websocket ws = {.client = true};
      vt_tunnel tunnel = {.sid = "name", .open = open};
      vt_tunnel_send(&tunnel, &ws, "0123456789abcdef", 16);
      vt_text_put_n(&ws.message, rows[i].bytes, rows[i].size);
      assert_false(vt_tunnel_take(&tunnel, &ws, VT_WS_BINARY, false));
      assert_int_equal(tunnel.wrong, open ? VT_TUNNEL_BAD_TAG : rows[i].code);
      vt_websocket_fini(&ws);
      vt_tunnel_fini(&tunnel);
    }
}

static const struct wrong tunnel_wrongs[] = {
    WRONG("nothing", "", VT_TUNNEL_BAD_DATA),
    WRONG("half a tag", "\x00", VT_TUNNEL_BAD_DATA),
    WRONG("a tag of nobody", "\x00\x09", VT_TUNNEL_BAD_TAG),
    WRONG("a tag of the server", "\x00\x01\x00\x00\x00\x01x", VT_TUNNEL_BAD_TAG),
    WRONG("data without its length", "\x00\x04\x00\x00", VT_TUNNEL_BAD_DATA),
    WRONG("less data than it says", "\x00\x04\x00\x00\x00\x05xxxx", VT_TUNNEL_BAD_DATA),
    WRONG("more data than it says", "\x00\x04\x00\x00\x00\x02xxxx", VT_TUNNEL_BAD_DATA),
    WRONG("a length that wraps", "\x00\x04\xff\xff\xff\xffxxxx", VT_TUNNEL_BAD_DATA),
    WRONG("thanks for what was not sent", "\x00\x07\x00\x00\x00\x00\x00\x00\x00\x01",
          VT_TUNNEL_BAD_ACK),
    WRONG("endless thanks", "\x00\x07\xff\xff\xff\xff\xff\xff\xff\xff", VT_TUNNEL_BAD_ACK),
    WRONG("short thanks", "\x00\x07\x00", VT_TUNNEL_BAD_DATA)};

static void a_wrong_tunnel_frame_closes(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof tunnel_wrongs / sizeof *tunnel_wrongs; i++) {
    vt_websocket ws = {0};
    vt_tunnel tunnel = {0};
    vt_text_put_n(&ws.message, tunnel_wrongs[i].bytes, tunnel_wrongs[i].size);
    bool good = vt_tunnel_take(&tunnel, &ws, VT_WS_BINARY, true);
    if (good || tunnel.wrong != tunnel_wrongs[i].code)
      fail_msg("%s: %d", tunnel_wrongs[i].why, (int)tunnel.wrong);
    assert_false(vt_tunnel_take(&tunnel, &ws, VT_WS_TEXT, true));
    assert_int_equal(tunnel.wrong, VT_TUNNEL_BAD_OPCODE);
    vt_websocket_fini(&ws);
    vt_tunnel_fini(&tunnel);
  }
}

// --- who may -------------------------------------------------------------------------------------

static void tunnels_are_for_those_of_the_project(void **state) {
  vt_testing t;
  int status;
  (void)state;
#define CONNECT "/v4/connect?zone=us-central2-b&interface=nic0&port=22&instance=t1v-n-00000000-w-0"
  vt_testing_open(&t, "");
  char *stranger = vt_testing_account(&t, "eve@example.com", "user"),
       *viewer = vt_testing_account(&t, "vera@example.com", "user"),
       *guest = vt_testing_account(&t, "gus@example.com", "user");
  json_decref(vt_testing_call(
      &t, "POST", "/v1/projects/" TESTING_PROJECT ":setIamPolicy",
      "{\"policy\":{\"bindings\":[{\"role\":\"roles/"
      "owner\",\"members\":[\"user:admin@vtpu.localhost\"]},"
      "{\"role\":\"roles/viewer\",\"members\":[\"user:vera@example.com\"]},"
      "{\"role\":\"roles/iap.tunnelResourceAccessor\",\"members\":[\"user:gus@example.com\"]}]}}",
      200));
  const struct {
    const char *token, *url;
    int status;
  } tries[] = {{NULL, CONNECT "&project=" TESTING_PROJECT, 401},
               {"vta.0000", CONNECT "&project=" TESTING_PROJECT, 401},
               {stranger, CONNECT "&project=" TESTING_PROJECT, 403},
               {stranger, CONNECT "&project=no-such-project", 403},
               {viewer, CONNECT "&project=" TESTING_PROJECT, 403},
               {guest, CONNECT "&project=" TESTING_PROJECT, 404},
               {guest, CONNECT, 400},
               {guest, CONNECT "&project=" TESTING_PROJECT "&port=x", 404}, // the first one counts
               {guest, "/v4/connect?project=" TESTING_PROJECT "&port=70000", 400},
               {NULL, "/v4/reconnect?sid=x&ack=0", 401},
               {guest, "/v4/reconnect?sid=x&ack=0", 400}}; // not a WebSocket
  for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
    json_decref(vt_testing_call_as(&t, tries[i].token, "GET", tries[i].url, NULL, &status));
    if (status != tries[i].status) fail_msg("%s: %d", tries[i].url, status);
  }
  free(stranger);
  free(viewer);
  free(guest);
  vt_testing_close(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_handshake_is_that_of_the_rfc),
      cmocka_unit_test(messages_cross),
      cmocka_unit_test(a_wrong_frame_closes),
      cmocka_unit_test(pings_alone_do_not_fill_memory),
      cmocka_unit_test(a_tunnel_goes_on_where_it_broke),
      cmocka_unit_test(a_wrong_count_closes),
      cmocka_unit_test(a_wrong_tunnel_frame_closes),
      cmocka_unit_test(tunnels_are_for_those_of_the_project),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
