#include "ranks/tcp_mesh.h"

#include <charconv>
#include <cstring>
#include <utility>

#include "base/at.h"

namespace graphsink {
namespace {

// How long a process that ends still hands over what it has sent.
constexpr int kLingerMs = 10'000, kLingerMsGivenUp = 1000;

// The first part of a message, followed by the name of the group.
struct MessageHead {
  std::uint64_t token = 0, number = 0;
  std::int32_t kind = 0, from = 0;
};

[[noreturn]] void zeromq_failed(const zmq::error_t& e) {
  throw Error("ranks", Where(), std::string("ZeroMQ failed: ") + e.what(),
              "end the process, and start all ranks again from a checkpoint", ErrorCode::device_lost);
}

int bound_port(const zmq::socket_t& socket) {
  const std::string endpoint = socket.get(zmq::sockopt::last_endpoint);
  int port = 0;
  const char* begin = endpoint.data() + endpoint.rfind(':') + 1;
  std::from_chars(begin, endpoint.data() + endpoint.size(), port);
  return port;
}

}  // namespace

TcpMesh::TcpMesh(const RankStart& start, double patience_s, const Where& where) try : start_(start) {
  auto& [context, in, out] = *sockets_;
  context.set(zmq::ctxopt::max_sockets, start.size + 16);
  in = tcp_socket(context, zmq::socket_type::pull, start);
  in.bind("tcp://" + bracketed(interface_of(start)) + ":*");
  const MeshAddresses mesh = find_ranks(context, start_, bound_port(in), patience_s, where);
  token_ = mesh.token;
  for (int rank = 0; rank < start.size; ++rank) {
    out.push_back(rank == start.rank ? zmq::socket_t() : tcp_socket(context, zmq::socket_type::push, start));
    if (rank == start.rank) continue;
    out.back().set(zmq::sockopt::linger, kLingerMs);
    out.back().connect(mesh.endpoints[at(rank)]);
  }
} catch (const zmq::error_t& e) {
  throw Error("world", where, std::string("ZeroMQ failed: ") + e.what(),
              "see how many sockets a process may open (ulimit -n)", ErrorCode::unavailable);
}

TcpMesh::~TcpMesh() { end(); }

// In a child of fork() the threads of ZeroMQ are missing, for which its end would wait.
void TcpMesh::end() {
  const std::lock_guard lock(mutex_);
  if (fork_mark_.is_in_child()) (void)sockets_.release();
  sockets_.reset();
}

std::string TcpMesh::next_world() {
  const std::lock_guard lock(mutex_);
  return std::to_string(worlds_++);
}

void TcpMesh::send(int to, const MessageKey& key, zmq::message_t message) {
  const MessageHead head{token_, key.number, key.kind, key.from};
  zmq::message_t first(sizeof head + key.group.size());
  std::memcpy(first.data(), &head, sizeof head);
  key.group.copy(first.data<char>() + sizeof head, key.group.size());
  const std::lock_guard lock(mutex_);
  if (!sockets_)
    throw Error("ranks", Where(), "the process is ending", "end programs before main() returns", ErrorCode::misuse);
  try {
    send_part(sockets_->out[at(to)], std::move(first), true);
    send_part(sockets_->out[at(to)], std::move(message), false);
  } catch (const zmq::error_t& e) {
    zeromq_failed(e);
  }
}

std::optional<zmq::message_t> TcpMesh::take(const MessageKey& key) {
  const std::lock_guard lock(mutex_);
  auto found = messages_.extract(key);
  if (found.empty()) return std::nullopt;
  return std::move(found.mapped());
}

std::optional<std::string> TcpMesh::look_at(const MessageKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = messages_.find(key);
  if (found == messages_.end()) return std::nullopt;
  return found->second.to_string();
}

// Messages without the token are of strangers.
void TcpMesh::receive() try {
  const std::lock_guard lock(mutex_);
  if (!sockets_) return;
  for (auto parts = receive_parts(sockets_->in); !parts.empty(); parts = receive_parts(sockets_->in)) {
    MessageHead head;
    if (parts.size() != 2 || parts[0].size() < sizeof head) continue;
    std::memcpy(&head, parts[0].data(), sizeof head);
    if (head.token != token_) continue;
    std::string group(parts[0].data<char>() + sizeof head, parts[0].size() - sizeof head);
    messages_.insert_or_assign({std::move(group), head.kind, head.number, head.from}, std::move(parts[1]));
  }
} catch (const zmq::error_t& e) {
  zeromq_failed(e);
}

void TcpMesh::give_up() {
  const std::lock_guard lock(mutex_);
  has_given_up_ = true;
  if (!sockets_) return;
  for (zmq::socket_t& socket : sockets_->out)
    if (socket) socket.set(zmq::sockopt::linger, kLingerMsGivenUp);
}

bool TcpMesh::has_given_up() const {
  const std::lock_guard lock(mutex_);
  return has_given_up_;
}

}  // namespace graphsink
