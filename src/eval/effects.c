// SPDX-License-Identifier: Apache-2.0
// effects.c - ops that interact with their environment: device ids, transfers to and from the host.
#include "eval/kernel.h"
#include "ir/number.h"

static int32_t device_position(const vt_eval_env *env) {
  return env->replica * (env->partition_count ? env->partition_count : 1) + env->partition;
}

vt_status vt_eval_device_id(const vt_eval_call *call) {
  int32_t id = call->op->code == VT_OP_REPLICA_ID ? call->env->replica : call->env->partition;
  vt_number_store(call->out[0].type.dtype, call->out[0].data, 0, id);
  return VT_OK;
}

// send and outfeed pass out their data operands in order, recv and infeed fill their data results.
// infeed and outfeed have no channel: -1.
vt_status vt_eval_transfer(const vt_eval_call *call) {
  const vt_op *op = call->op;
  const vt_host_transfer *transfer = call->env->transfer;
  if (!transfer) return vt_eval_refuse(op, "a transfer with the host here");
  int64_t channel = vt_attr_i64_or(op, VT_ATTR_CHANNEL_ID, -1);
  int32_t device = device_position(call->env);
  bool sends = op->code == VT_OP_SEND || op->code == VT_OP_OUTFEED;
  uint32_t count = sends ? vt_op_own_operands(op) : op->result_count;
  for (uint32_t i = 0; i < count; i++) {
    vt_tensor t = sends ? call->in[i] : call->out[i];
    if (t.type.dtype == VT_TOKEN) continue;
    if (sends)
      VT_TRY(transfer->send(transfer->user, device, channel, t.type, t.data));
    else
      VT_TRY(transfer->recv(transfer->user, device, channel, t.type, t.data));
  }
  return VT_OK;
}
