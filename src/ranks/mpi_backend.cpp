#include "ranks/mpi_backend.h"

#include <mpi.h>

#include <atomic>
#include <limits>
#include <string>

namespace graphsink {
namespace {

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error("ranks", Where(), std::string(call) + " failed: " + text,
              "end the process, and start all ranks again from a checkpoint", ErrorCode::device_lost);
}

// MPI is initialised once in a process, and is finalised when the process ends, if it was initialised here.
class MpiLibrary {
 public:
  MpiLibrary() {
    int is_initialized = 0;
    MPI_Initialized(&is_initialized);
    if (is_initialized) {
      MPI_Query_thread(&level_);
      return;
    }
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level_), "MPI_Init_thread");
    is_ours_ = true;
    // Open MPI reports errors of exchanges there, too. As they are, they would end the process.
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  ~MpiLibrary() {
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    if (is_ours_ && !is_finalized && !has_given_up_) MPI_Finalize();
  }
  MpiLibrary(const MpiLibrary&) = delete;
  MpiLibrary& operator=(const MpiLibrary&) = delete;

  int thread_level() const { return level_; }
  // A rank has not come to an exchange, and MPI_Finalize() would wait for it, too. mpirun ends the other processes when
  // one ends without that call.
  void give_up() { has_given_up_ = true; }

 private:
  int level_ = MPI_THREAD_SINGLE;
  bool is_ours_ = false;
  std::atomic<bool> has_given_up_ = false;
};

MpiLibrary& mpi_library() {
  static MpiLibrary library;
  return library;
}

class MpiBackend : public RankBackend {
 public:
  MpiBackend() {
    for (MPI_Comm* comm : {&texts_, &elements_}) {
      check(MPI_Comm_dup(MPI_COMM_WORLD, comm), "MPI_Comm_dup");
      check(MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    }
    MPI_Comm_rank(texts_, &rank_);
    MPI_Comm_size(texts_, &size_);
  }
  ~MpiBackend() override {
    int is_finalized = 0;
    MPI_Finalized(&is_finalized);
    if (is_finalized || has_given_up_) return;  // MPI_Comm_free() would wait for an exchange that others have left
    MPI_Comm_free(&texts_);
    MPI_Comm_free(&elements_);
  }
  MpiBackend(const MpiBackend&) = delete;
  MpiBackend& operator=(const MpiBackend&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_to_all(Channel channel, const void* in, void* out, std::size_t bytes) override {
    const int n = count(bytes);
    check(MPI_Ialltoall(in, n, MPI_BYTE, out, n, MPI_BYTE, comm(channel), &request_), "MPI_Ialltoall");
  }
  void all_gather(Channel channel, const void* in, void* out, std::size_t bytes) override {
    const int n = count(bytes);
    check(MPI_Iallgather(in, n, MPI_BYTE, out, n, MPI_BYTE, comm(channel), &request_), "MPI_Iallgather");
  }
  void broadcast(Channel channel, void* data, std::size_t bytes, int root) override {
    check(MPI_Ibcast(data, count(bytes), MPI_BYTE, root, comm(channel), &request_), "MPI_Ibcast");
  }
  bool is_done() override {
    int flag = 0;
    check(MPI_Test(&request_, &flag, MPI_STATUS_IGNORE), "MPI_Test");
    return flag != 0;
  }
  void give_up() override {
    has_given_up_ = true;
    mpi_library().give_up();
  }

 private:
  MPI_Comm comm(Channel channel) const { return channel == Channel::texts ? texts_ : elements_; }
  static int count(std::size_t bytes) {
    if (bytes <= static_cast<std::size_t>(std::numeric_limits<int>::max())) return static_cast<int>(bytes);
    throw Error("ranks", Where(),
                std::to_string(bytes) + " bytes in one exchange, and MPI counts no more than 2^31 - 1",
                "exchange the tensor in parts");
  }

  MPI_Comm texts_ = MPI_COMM_NULL, elements_ = MPI_COMM_NULL;
  MPI_Request request_ = MPI_REQUEST_NULL;
  int rank_ = 0, size_ = 1;
  bool has_given_up_ = false;
};

}  // namespace

std::unique_ptr<RankBackend> open_mpi(const Where& where) {
  if (mpi_library().thread_level() < MPI_THREAD_MULTIPLE)
    throw Error("mpi_world", where, "MPI was initialised for fewer threads than MPI_THREAD_MULTIPLE",
                "call MPI_Init_thread() with MPI_THREAD_MULTIPLE, or leave it to mpi_world()", ErrorCode::unavailable);
  return std::make_unique<MpiBackend>();
}

}  // namespace graphsink
