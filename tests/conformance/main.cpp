// conformance_record: what the CUDA runtime answers, case by case.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <mutex>
#include <sstream>
#include <thread>

#include "conformance/child.h"
#include "conformance/golden.h"
#include "conformance/scene.h"

namespace conformance {
namespace {

#ifdef GRAPHSINK_EMULATED
constexpr bool kIsEmulated = true;
#else
constexpr bool kIsEmulated = false;
#endif

constexpr int kNoDevice = 3;

struct Options {
  bool list = false, write_assumed = false;
  std::string one, check, record, out;
  unsigned jobs = 2;
};

// Where text goes: a file, or stdout when no name is given.
class Output {
 public:
  explicit Output(const std::string& path) {
    if (path.empty()) return;
    file_.open(path);
    if (!file_) throw std::runtime_error("cannot write " + path);
  }
  std::ostream& stream() { return file_.is_open() ? file_ : std::cout; }

 private:
  std::ofstream file_;
};

Golden load(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  return read_golden(file);
}

const Case* find_case(const std::vector<Case>& cases, const std::string& name) {
  for (const Case& one : cases) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

// Why this program cannot run a case here; empty when it can.
std::string left_out(const Case& one) { return kIsEmulated && one.not_emulated != nullptr ? one.not_emulated : ""; }

int list(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    const std::string reason = left_out(one);
    std::cout << one.name << "  (" << one.row << ")" << (reason.empty() ? "" : "  not emulated: " + reason) << '\n';
  }
  return 0;
}

// In this process, which ends without tidying up: a lost device must not hang the end.
[[noreturn]] void run_here(const Case& one) {
  // Read when the software device starts; nothing to a real one.
  setenv("GS_EMU_DEVICES", std::to_string(one.devices).c_str(), 1);
  int devices = 0, driver = 0, toolkit = 0;
  cudaDeviceProp properties{};
  cudaError_t code = cudaGetDeviceCount(&devices);
  if (code == cudaSuccess) code = cudaGetDeviceProperties(&properties, 0);
  if (code == cudaSuccess) code = cudaDriverGetVersion(&driver);
  if (code == cudaSuccess) code = cudaRuntimeGetVersion(&toolkit);
  if (code == cudaSuccess) code = load_kernels();
  if (code != cudaSuccess) {
    std::fprintf(stderr, "no device to ask: %s\n", cudaGetErrorString(code));
    std::_Exit(kNoDevice);
  }
  std::printf("# device: %s; driver %d; toolkit %d\n", properties.name, driver, toolkit);
  std::fflush(stdout);
  if (devices < one.devices) {
    std::fprintf(stderr, "%s needs %d devices\n", one.name.c_str(), one.devices);
    std::_Exit(0);
  }
  Recorder recorder(one.name);
  try {
    one.run(recorder);
  } catch (const CaseStopped&) {
  }
  std::_Exit(0);
}

using Done = std::function<void(std::size_t, const Outcome&)>;

// By index of the case; several processes at a time, but first one alone, to see that there is a device. Calls done()
// after each case, one call at a time.
std::vector<Outcome> run_all(
    const std::vector<Case>& cases, const Options& options, const Done& done = [](std::size_t, const Outcome&) {}) {
  const std::string program = "/proc/self/exe";
  std::vector<Outcome> outcomes(cases.size());
  outcomes[0] = run_in_child(program, cases[0].name);
  if (outcomes[0].device.empty()) throw std::runtime_error(cases[0].name + " found no device to ask");
  done(0, outcomes[0]);
  std::mutex one_at_a_time;
  std::atomic<std::size_t> next{1};
  std::vector<std::jthread> workers;
  for (unsigned i = 0; i < options.jobs; ++i) {
    workers.emplace_back([&] {
      for (std::size_t n = next++; n < cases.size(); n = next++) {
        if (!left_out(cases[n]).empty()) continue;
        outcomes[n] = run_in_child(program, cases[n].name);
        std::lock_guard lock(one_at_a_time);
        done(n, outcomes[n]);
      }
    });
  }
  workers.clear();
  return outcomes;
}

// A case that was not left out and has nothing to say: too few devices.
bool lacks_devices(const Case& one, const Outcome& outcome) {
  return one.devices > 1 && outcome.problem.empty() && outcome.lines.empty();
}

std::vector<std::string> all_differences(const std::vector<Case>& cases, const Golden& golden,
                                         const std::vector<Outcome>& outcomes) {
  std::vector<std::string> found;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string& name = cases[i].name;
    if (!left_out(cases[i]).empty() || lacks_devices(cases[i], outcomes[i])) continue;
    if (!outcomes[i].problem.empty()) found.push_back(name + ": its process " + outcomes[i].problem);
    const auto lines = golden.find(name);
    const auto more = differences(name, lines == golden.end() ? Lines() : lines->second, outcomes[i].lines);
    found.insert(found.end(), more.begin(), more.end());
  }
  return found;
}

// What a device answered where it may answer one way or another.
void print_open_answers(const std::vector<Case>& cases, const Golden& golden, const std::vector<Outcome>& outcomes) {
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto lines = golden.find(cases[i].name);
    if (lines == golden.end()) continue;
    for (const std::string& line : open_answers(cases[i].name, lines->second, outcomes[i].lines)) {
      std::cout << "either way: " << line << '\n';
    }
  }
}

void print_counts(const std::vector<Case>& cases, const Golden& golden, const std::vector<Outcome>& outcomes) {
  std::size_t lines = 0, assumed = 0, foreign = 0, reasons = 0, open_cases = 0, not_emulated = 0, few_devices = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    not_emulated += !left_out(cases[i]).empty();
    if (left_out(cases[i]).empty()) few_devices += lacks_devices(cases[i], outcomes[i]);
  }
  for (const auto& [name, one] : golden) {
    bool is_open = false;
    for (const Line& line : one) {
      assumed += line.state == kAssumed;
      foreign += line.state == kForeign;
      reasons += !line.reason.empty();
      is_open |= !line.is_confirmed();
    }
    lines += one.size();
    open_cases += is_open;
  }
  std::cout << "cases: " << cases.size() << ", of them " << cases.size() - open_cases
            << " gpu-confirmed; not run here: " << not_emulated << " not emulated, " << few_devices
            << " for want of devices\n"
            << "answers: " << lines << ", of them " << assumed << " assumed, " << foreign << " by a foreign test and "
            << lines - assumed - foreign << " gpu-confirmed; " << reasons << " decided with a reason\n";
}

int check(const std::vector<Case>& cases, const std::vector<Outcome>& outcomes, const std::string& path) {
  const Golden golden = load(path);
  std::vector<std::string> wrong = stale_lines(cases, golden);
  const std::vector<std::string> more = all_differences(cases, golden, outcomes);
  wrong.insert(wrong.end(), more.begin(), more.end());
  for (const std::string& line : wrong) std::cout << line << '\n';
  print_open_answers(cases, golden, outcomes);
  print_counts(cases, golden, outcomes);
  std::cout << wrong.size() << " mismatches\n";
  return wrong.empty() ? 0 : 1;
}

// The file is whole at any moment, also when this process is killed.
void replace_golden(const std::string& path, const std::vector<Case>& cases, const Golden& golden,
                    const std::string& device) {
  const std::string unfinished = path + ".unfinished";
  write_golden(Output(unfinished).stream(), cases, golden, "last recorded on " + device);
  std::filesystem::rename(unfinished, path);
}

// Disagreement with what was assumed is a result, not a failure, and so is a case that does not come to its end. The
// golden file is written after each case, so that a run that is cut short leaves the answers it got.
int record(const std::vector<Case>& cases, const Options& options) {
  const Golden before = load(options.record);
  const std::string path = options.out.empty() ? options.record : options.out;
  Golden golden = before;
  const std::vector<Outcome> outcomes = run_all(cases, options, [&](std::size_t i, const Outcome& outcome) {
    Lines& lines = golden[cases[i].name];
    lines = confirm(lines, outcome.lines, "gpu-confirmed (" + outcome.device + ")");
    replace_golden(path, cases, golden, outcome.device);
  });
  const std::vector<std::string> disagreements = all_differences(cases, before, outcomes);
  print_open_answers(cases, golden, outcomes);
  for (const std::string& line : disagreements) std::cout << line << '\n';
  print_counts(cases, golden, outcomes);
  std::cout << disagreements.size() << " disagreements with the golden file before\n";
  return 0;
}

int write_answers(const std::vector<Case>& cases, const std::vector<Outcome>& outcomes, const std::string& path) {
  Output out(path);
  out.stream() << "# device: " << outcomes[0].device << '\n';
  int code = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Outcome& outcome = outcomes[i];
    for (const Line& line : outcome.lines) {
      out.stream() << cases[i].name << ", " << line.call << ", " << line.code << ", " << line.status << '\n';
    }
    if (outcome.problem.empty()) continue;
    std::cerr << cases[i].name << ": its process " << outcome.problem << '\n';
    code = 1;
  }
  return code;
}

int run(const Options& options) {
  const std::vector<Case> cases = all_cases();
  if (options.list) return list(cases);
  if (options.write_assumed) {
    write_golden(Output(options.out).stream(), cases, expected_golden(cases), "not recorded on a GPU yet");
    return 0;
  }
  if (!options.one.empty()) {
    const Case* one = find_case(cases, options.one);
    if (one == nullptr) throw std::runtime_error("no case " + options.one + "; see --list");
    if (!left_out(*one).empty()) throw std::runtime_error(one->name + " is not emulated: " + left_out(*one));
    run_here(*one);
  }
  if (kIsEmulated && !options.record.empty()) throw std::runtime_error("only a GPU can confirm: --record needs one");
  if (!options.record.empty()) return record(cases, options);
  const std::vector<Outcome> outcomes = run_all(cases, options);
  if (!options.check.empty()) return check(cases, outcomes, options.check);
  return write_answers(cases, outcomes, options.out);
}

}  // namespace
}  // namespace conformance

int main(int argc, char** argv) {
  conformance::Options options;
  CLI::App app("Asks the CUDA runtime each case, in a process of its own, and writes down the answers.");
  app.add_flag("--list", options.list, "Names of the cases and the rows they come from");
  app.add_flag("--write-assumed", options.write_assumed, "Write the golden file from the tables; runs nothing");
  app.add_option("--case", options.one, "Run one case in this process");
  app.add_option("--check", options.check, "Compare with this golden file");
  app.add_option("--record", options.record, "On a GPU: confirm this golden file's answers, list disagreements");
  app.add_option("--out", options.out, "Where to write instead of stdout, or of the golden file of --record");
  app.add_option("--jobs", options.jobs, "Processes at a time")->check(CLI::Range(1, 64));
  CLI11_PARSE(app, argc, argv);
  try {
    return conformance::run(options);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
