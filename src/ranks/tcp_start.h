// How ranks that were started by variables find each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "graphsink/error.h"
#include "ranks/rank_start.h"

namespace graphsink {

struct MeshAddresses {
  std::uint64_t token = 0;             // equal on all ranks, and unknown to others
  std::vector<std::string> endpoints;  // at which the ranks receive, in their order
};

// Every rank tells rank 0 the port at which it receives, and gets the addresses of all. Throws Error on all ranks where
// they do not fit together, and ErrorCode::device_lost, with the ranks that have not come, when the patience ends.
MeshAddresses find_ranks(zmq::context_t& context, const RankStart& start, int port, double patience_s,
                         const Where& where);

// A socket that keeps any number of messages, and waits a second at most for a peer that has gone when it is closed.
zmq::socket_t tcp_socket(zmq::context_t& context, zmq::socket_type type, const RankStart& start);
// An address as ZeroMQ reads it: one of IPv6 in brackets.
std::string bracketed(const std::string& host);
// A patience in whole milliseconds, at most some years.
std::int64_t milliseconds_of(double seconds);
// Where a rank listens: "127.0.0.1" if rank 0 can be reached from this machine alone, "*" else.
std::string interface_of(const RankStart& start);
// Receives the parts of a message; none if there is no message yet.
std::vector<zmq::message_t> receive_parts(zmq::socket_t& socket);
void send_part(zmq::socket_t& socket, zmq::message_t part, bool more);

}  // namespace graphsink
