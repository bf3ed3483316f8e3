#include "ranks/tcp_start.h"

#include <netdb.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <functional>
#include <iterator>
#include <random>
#include <string_view>

#include "base/at.h"
#include "graphsink/version.h"

namespace graphsink {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kStartTogether =
    "start all ranks with equal MASTER_ADDR, MASTER_PORT and WORLD_SIZE, and a RANK of its own each; see why the "
    "missing ones have ended";
constexpr const char* kOtherPort =
    "give RANK 0 to one process alone, on the machine that MASTER_ADDR names, and another port by GRAPHSINK_PORT if "
    "another program uses this one";
constexpr const char* kOtherJob =
    "give each job a MASTER_PORT of its own, or a GRAPHSINK_PORT, equal for all its ranks; if this is one job after "
    "all, unset the variable";

// The first word of all that is said before the mesh is there.
std::string greeting() {
  return "graphsink-ranks " + std::to_string(GRAPHSINK_VERSION_MAJOR) + "." + std::to_string(GRAPHSINK_VERSION_MINOR) +
         "." + std::to_string(GRAPHSINK_VERSION_PATCH);
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words{""};
  for (const char c : text) {
    if (c == '\n') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

template <class Number>
bool read_number(const std::string& text, Number& number) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  return code == std::errc() && end == text.data() + text.size();
}

std::string endpoint(const std::string& host, int port) {
  return "tcp://" + bracketed(host) + ":" + std::to_string(port);
}
bool is_this_machine(const std::string& host) {
  return host == "localhost" || host.starts_with("127.") || host == "::1" || host == "[::1]" ||
         host.starts_with("::ffff:127.");
}

// "; MASTER_ADDR is "...": no such name"; empty where the name of rank 0's machine is known. Names may become known
// while ranks start, so this is asked when a wait ends.
std::string unknown_host(const RankStart& start) {
  std::string host = start.host;
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), nullptr, nullptr, &found);
  if (code == 0) freeaddrinfo(found);
  return code == 0 ? ""
                   : "; MASTER_ADDR is \"" + start.host + "\", which this machine does not know: " + gai_strerror(code);
}

// Waits until a message is there, or the time has come.
bool wait_for(zmq::socket_t& socket, Clock::time_point end) {
  using std::chrono::milliseconds;
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
    zmq::pollitem_t item{socket.handle(), 0, ZMQ_POLLIN, 0};
    // A wait is cut into pieces, because its length is counted in few bits.
    const milliseconds piece = std::clamp(left, milliseconds(0), milliseconds(1000));
    if (zmq_poll(&item, 1, static_cast<long>(piece.count())) > 0) return true;
    if (Clock::now() >= end) return false;
  }
}

Clock::time_point time_after(double seconds) {
  return Clock::now() + std::chrono::milliseconds(milliseconds_of(seconds));
}

// Another rank, as rank 0 sees it.
struct Guest {
  bool has_come = false;
  std::string id;        // to which the socket sends an answer
  std::string endpoint;  // where it receives; "" on the machine of rank 0, with `port`
  int port = 0;
};

// Rank 0, to whom the others speak. Each says the greeting, then "hello", its rank, size, port and job, or "bye", its
// rank, the words with which it gives up, and its job.
class Host {
 public:
  Host(zmq::context_t& context, const RankStart& start, int port, const Where& where)
      : start_(start),
        where_(where),
        socket_(tcp_socket(context, zmq::socket_type::router, start)),
        guests_(at(start.size)) {
    guests_[0].has_come = true;
    guests_[0].port = port;
    try {
      socket_.bind("tcp://" + bracketed(interface_of(start)) + ":" + std::to_string(start.port));
    } catch (const zmq::error_t& e) {
      throw Error("world", where, "rank 0 cannot listen at port " + std::to_string(start.port) + ": " + e.what(),
                  kOtherPort, ErrorCode::unavailable);
    }
  }

  MeshAddresses gather(double patience_s) {
    const Clock::time_point end = time_after(patience_s);
    while (!missing().empty()) {
      if (!wait_for(socket_, end))
        fail("rank 0" + waited(patience_s) + missing(), ErrorCode::device_lost, [&] { return unknown_host(start_); });
      for (auto parts = receive_parts(socket_); !parts.empty(); parts = receive_parts(socket_))
        if (!missing().empty()) hear(parts);
    }
    MeshAddresses mesh;
    std::random_device random;
    mesh.token = (std::uint64_t{random()} << 32) | random();
    std::string answer = greeting() + "\nmesh\n" + std::to_string(mesh.token);
    for (const Guest& guest : guests_)
      answer += "\n" + (guest.endpoint.empty() ? std::to_string(guest.port) : guest.endpoint);
    for (const Guest& guest : guests_)
      mesh.endpoints.push_back(guest.endpoint.empty() ? endpoint(start_.host, guest.port) : guest.endpoint);
    tell_all(answer);
    return mesh;
  }

 private:
  std::string waited(double patience_s) const {
    return " of " + std::to_string(start_.size) + " has waited " + std::to_string(milliseconds_of(patience_s)) +
           " ms for ";
  }
  // "rank 2, rank 3, not heard of"; empty if all are there.
  std::string missing() const {
    std::string names;
    for (std::size_t rank = 0; rank < guests_.size(); ++rank)
      if (!guests_[rank].has_come) names += (names.empty() ? "rank " : ", rank ") + std::to_string(rank);
    return names.empty() ? "" : names + ", not heard of" + strange_;
  }

  void hear(std::vector<zmq::message_t>& parts) {
    const std::vector<std::string> words = words_of(parts.back().to_string());
    int rank = 0, size = 0, port = 0;
    if (parts.size() != 2 || words.size() < 4 || !words[0].starts_with("graphsink-ranks ") ||
        !read_number(words[2], rank)) {
      strange_ = "; another program has spoken to port " + std::to_string(start_.port);
      return;
    }
    const std::string id = parts.front().to_string();
    if (is_of_other_job(words)) return refuse(id, words);
    if (words[1] == "bye") fail(words[3] + missing(), ErrorCode::device_lost);
    const std::string name = "a process with RANK " + words[2];
    if (words[0] != greeting()) fail_with(id, name + " has " + words[0] + ", and rank 0 has " + greeting());
    if (words.size() != 6 || !read_number(words[3], size) || !read_number(words[4], port)) return;
    if (size != start_.size)
      fail_with(id, name + " has a world of " + words[3] + " ranks, and rank 0 one of " + std::to_string(start_.size));
    if (rank < 0 || rank >= size || guests_[at(rank)].has_come)
      fail_with(id, "several processes have RANK " + words[2]);
    const char* address = zmq_msg_gets(parts.back().handle(), "Peer-Address");
    const bool is_here = address == nullptr || is_this_machine(address);
    guests_[at(rank)] = {true, id, is_here ? "" : endpoint(address, port), port};
  }

  // Jobs with one port must not compute together. Where a variable names one of them alone, nobody can tell.
  bool is_of_other_job(const std::vector<std::string>& words) const {
    return words[0] == greeting() && words.size() > 4 && !words.back().empty() && !start_.job.empty() &&
           words.back() != start_.job;
  }
  // This job goes on without it.
  void refuse(const std::string& id, const std::vector<std::string>& words) {
    tell(id, greeting() + "\nother job\nat port " + std::to_string(start_.port) + " of " + start_.host +
                 " is rank 0 of another job, with " + start_.job + ", and this process has " + words.back());
    strange_ = "; a process of another job, with " + words.back() + ", has spoken to port " +
               std::to_string(start_.port) + ", and rank 0 has " + start_.job;
  }

  void tell(const std::string& id, const std::string& text) {
    send_part(socket_, zmq::message_t(id), true);
    send_part(socket_, zmq::message_t(text), false);
  }
  void tell_all(const std::string& text) {
    for (std::size_t rank = 1; rank < guests_.size(); ++rank)
      if (guests_[rank].has_come) tell(guests_[rank].id, text);
  }
  // `more`: what this rank alone adds, which may take its time; the others wait for the problem.
  [[noreturn]] void fail(const std::string& problem, ErrorCode code, const std::function<std::string()>& more = {}) {
    tell_all(greeting() + "\n" + (code == ErrorCode::device_lost ? "lost" : "wrong") + "\n" + problem);
    throw Error("world", where_, problem + (more ? more() : ""), kStartTogether, code);
  }
  // The process that fits not is told, too.
  [[noreturn]] void fail_with(const std::string& id, const std::string& problem) {
    tell(id, greeting() + "\nwrong\n" + problem);
    fail(problem, ErrorCode::misuse);
  }

  const RankStart& start_;
  const Where& where_;
  zmq::socket_t socket_;
  std::vector<Guest> guests_;
  std::string strange_;  // for people
};

MeshAddresses read_answer(const std::vector<zmq::message_t>& parts, const RankStart& start, const Where& where) {
  const std::vector<std::string> words = words_of(parts.back().to_string());
  if (words.size() > 2 && (words[1] == "lost" || words[1] == "wrong"))
    throw Error("world", where, words[2], kStartTogether,
                words[1] == "lost" ? ErrorCode::device_lost : ErrorCode::misuse);
  if (words.size() > 2 && words[1] == "other job") throw Error("world", where, words[2], kOtherJob, ErrorCode::misuse);
  MeshAddresses mesh;
  if (words[0] != greeting() || words.size() != at(start.size) + 3 || !read_number(words[2], mesh.token))
    throw Error("world", where, "at port " + std::to_string(start.port) + " of " + start.host + " is no rank 0",
                kOtherPort, ErrorCode::unavailable);
  for (std::size_t rank = 0; rank < at(start.size); ++rank) {
    int port = 0;
    const std::string& word = words[rank + 3];
    mesh.endpoints.push_back(read_number(word, port) ? endpoint(start.host, port) : word);
  }
  return mesh;
}

MeshAddresses ask_rank_0(zmq::context_t& context, const RankStart& start, int port, double patience_s,
                         const Where& where) {
  zmq::socket_t socket = tcp_socket(context, zmq::socket_type::dealer, start);
  try {
    socket.connect(endpoint(start.host, start.port));
  } catch (const zmq::error_t& e) {
    throw Error("world", where, "MASTER_ADDR is \"" + start.host + "\": " + e.what(),
                "set it to the name or the address of the machine of rank 0");
  }
  const std::string rank = std::to_string(start.rank), size = std::to_string(start.size);
  const auto say = [&](const std::string& words) {
    send_part(socket, zmq::message_t(greeting() + "\n" + words), false);
  };
  say("hello\n" + rank + "\n" + size + "\n" + std::to_string(port) + "\n" + start.job);
  bool is_there = wait_for(socket, time_after(patience_s));
  const std::string waited =
      "rank " + rank + " of " + size + " has waited " + std::to_string(milliseconds_of(patience_s)) + " ms for ";
  if (!is_there) {
    say("bye\n" + rank + "\n" + waited + "\n" + start.job);
    is_there = wait_for(socket, time_after(std::clamp(patience_s / 4, 0.1, 5.0)));  // rank 0 knows who is missing
  }
  const std::vector<zmq::message_t> parts = receive_parts(socket);
  if (!is_there || parts.empty())
    throw Error("world", where,
                waited + "rank 0, not heard of at port " + std::to_string(start.port) + " of " + start.host +
                    unknown_host(start),
                kStartTogether, ErrorCode::device_lost);
  return read_answer(parts, start, where);
}

}  // namespace

MeshAddresses find_ranks(zmq::context_t& context, const RankStart& start, int port, double patience_s,
                         const Where& where) {
  if (start.rank != 0) return ask_rank_0(context, start, port, patience_s, where);
  Host host(context, start, port, where);
  return host.gather(patience_s);
}

zmq::socket_t tcp_socket(zmq::context_t& context, zmq::socket_type type, const RankStart& start) {
  zmq::socket_t socket(context, type);
  socket.set(zmq::sockopt::sndhwm, 0);
  socket.set(zmq::sockopt::rcvhwm, 0);
  socket.set(zmq::sockopt::linger, 1000);
  socket.set(zmq::sockopt::ipv6, start.host.find(':') != std::string::npos);
  return socket;
}

std::string bracketed(const std::string& host) {
  return host.find(':') == std::string::npos || host.starts_with('[') ? host : "[" + host + "]";
}

std::int64_t milliseconds_of(double seconds) { return static_cast<std::int64_t>(std::min(seconds, 1e9) * 1000); }

std::string interface_of(const RankStart& start) {
  if (start.host == "localhost") return "127.0.0.1";
  return is_this_machine(start.host) ? start.host : "*";
}

std::vector<zmq::message_t> receive_parts(zmq::socket_t& socket) {
  std::vector<zmq::message_t> parts;
  bool more = true;
  while (more) {
    zmq::message_t part;
    if (zmq_msg_recv(part.handle(), socket.handle(), ZMQ_DONTWAIT) < 0) {
      if (zmq_errno() == EINTR) continue;
      if (zmq_errno() == EAGAIN) break;
      throw zmq::error_t();
    }
    more = part.more();
    parts.push_back(std::move(part));
  }
  return parts;
}

void send_part(zmq::socket_t& socket, zmq::message_t part, bool more) {
  while (zmq_msg_send(part.handle(), socket.handle(), ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0)) < 0)
    if (zmq_errno() != EINTR) throw zmq::error_t();
}

}  // namespace graphsink
