// A case asks the CUDA runtime one question and writes down the answers. The same source is linked against the software
// device and against the real runtime.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <string>
#include <vector>

namespace conformance {

// Of the stream a case watches, asked after a call.
enum class Status { kNotAsked, kNone, kActive, kInvalidated, kUnknown };

// One answer: what a call returned, or a value that can be seen.
struct Answer {
  std::string call;
  bool is_code = true;  // number is a cudaError_t
  int number = 0;
  Status status = Status::kNotAsked;
  // Why it is to be this answer, where sources disagree; empty elsewhere. Without line breaks.
  std::string reason = {};
  // Somebody else's test, written to pass on NVIDIA hardware, expects it, too.
  bool by_foreign_test = false;
  // What a device may answer instead, where it may differ: the same call with another code or status.
  std::vector<Answer> others = {};
};
Answer returns(const char* call, cudaError_t code, Status status = Status::kNotAsked);
Answer gives(const char* value, int number);
// The same with a reason, and with another answer that is right as well.
Answer decided(Answer answer, const char* reason);
Answer either(Answer answer, const Answer& other);

// "cudaErrorInvalidValue(1)", or the number of a value.
std::string answer_text(const Answer& answer);
std::string status_text(Status status);

// Thrown where the set-up of a case fails: there is nothing to ask.
struct CaseStopped {};

// Given to a case while it runs. Writes each answer to stdout at once, so that those before a crash are not lost.
class Recorder {
 public:
  explicit Recorder(std::string case_name) : case_name_(std::move(case_name)) {}

  // From now on answers carry the capture status of this stream.
  void watch(cudaStream_t stream);
  void call(const char* name, cudaError_t code);
  void value(const char* name, long long number);
  // A call of the set-up. One that fails is an answer nobody expects, and ends the case.
  void need(const char* name, cudaError_t code);

 private:
  void write(const Answer& answer);
  Status status() const;

  std::string case_name_;
  cudaStream_t watched_ = nullptr;
};

// A process of its own runs each case, which leaves its objects to the end of the process.
struct Case {
  std::string name;              // part.what
  std::string row;               // section of the fact sheet and the row, with the row's mark
  std::vector<Answer> expected;  // from the sheet alone
  std::function<void(Recorder&)> run;
  int devices = 1;                     // how many it needs
  const char* not_emulated = nullptr;  // why the software device cannot run it
};

// The same, all answers of which are expected by a foreign test.
Case by_foreign_test(Case one);
std::vector<Case> by_foreign_test(std::vector<Case> cases);

std::vector<Case> all_cases();

// The sheet's sections.
std::vector<Case> unsafe_call_cases();      // 1.1, the mode rule
std::vector<Case> capture_cases();          // 1.1, the rest
std::vector<Case> end_capture_cases();      // 1.2 and 1.3
std::vector<Case> captured_call_cases();    // 1.4
std::vector<Case> node_cases();             // 2, first table
std::vector<Case> graph_cases();            // 2, second table
std::vector<Case> conditional_cases();      // 3
std::vector<Case> conditional_run_cases();  // 3, what runs
std::vector<Case> launch_cases();           // 4
std::vector<Case> update_cases();           // 4.3
std::vector<Case> node_update_cases();      // 4.3, one node of an exec
std::vector<Case> host_cases();             // 5
std::vector<Case> cluster_cases();          // 2 and 4.3, clusters of blocks
std::vector<Case> error_log_cases();        // 4, what the error log says
std::vector<Case> argument_cases();         // what no section says and foreign tests do

}  // namespace conformance
