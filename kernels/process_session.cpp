// open_process: a kernel behind any program that speaks the adapter protocol (tools/adapters/README.md). One JSON
// line per request, HDF5 files for tensors. Whatever the program does wrong is a verdict on the case at hand; it is
// then started again, so that every other case still runs.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <system_error>

#include "golden/store.h"
#include "kernels/adapter_process.h"
#include "kernels/contract_file.h"
#include "kernels/schedule.h"
#include "kernels/session.h"

namespace gdn {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kProtocolVersion = 1;
constexpr const char* kDirectory = "gdn-cts-adapter-";
constexpr const char* kFolderGone = "the folder of exchange files is gone: somebody, most likely the adapter, removed it";

// A directory of its own for the files of one session, in memory where there is room. It holds a locked file for as
// long as the session lives, so that a later session can remove what a killed one left.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    const fs::path base = place();
    remove_abandoned(base);
    std::string pattern = (base / ("new-" + std::string(kDirectory) + "XXXXXX")).string();
    if (!::mkdtemp(pattern.data()))
      throw BadInput(base.string() + ": no temporary directory can be made there (" + std::strerror(errno) + "); set TMPDIR");
    path_ = pattern;
    lock_ = ::open((path_ / "lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (lock_ >= 0) ::flock(lock_, LOCK_EX | LOCK_NB);
    const fs::path final_name = base / path_.filename().string().substr(4);   // without "new-": from now on lockable
    std::error_code error;
    fs::rename(path_, final_name, error);
    if (!error) path_ = final_name;
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    if (lock_ >= 0) ::close(lock_);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const fs::path& path() const { return path_; }
  // Makes it again where it is gone; true then.
  bool restored() const {
    std::error_code error;
    if (fs::is_directory(path_, error)) return false;
    ::mkdir(path_.c_str(), 0700);
    return true;
  }

 private:
  static fs::path place() {
    if (const char* chosen = std::getenv("TMPDIR"); chosen && *chosen) return chosen;
    struct statvfs s{};
    const std::uint64_t room = 2ull << 30;         // containers often have 64 MiB there
    if (::access("/dev/shm", W_OK) == 0 && ::statvfs("/dev/shm", &s) == 0 && std::uint64_t{s.f_bavail} * s.f_frsize >= room)
      return "/dev/shm";
    return "/tmp";
  }
  static void remove_abandoned(const fs::path& base) {
    std::error_code error;
    for (fs::directory_iterator at(base, error), end; !error && at != end; at.increment(error)) {
      if (at->path().filename().string().rfind(kDirectory, 0) != 0) continue;
      const int lock = ::open((at->path() / "lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
      if (lock < 0) continue;
      std::error_code ignored;
      if (::flock(lock, LOCK_EX | LOCK_NB) == 0) fs::remove_all(at->path(), ignored);
      ::close(lock);
    }
  }
  fs::path path_;
  int lock_ = -1;
};

struct RemoveAtEnd {
  fs::path file;
  ~RemoveAtEnd() {
    std::error_code ignored;
    fs::remove(file, ignored);
  }
};

std::string quoted_for_shell(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string text_of(const json& object, const char* key, const std::string& otherwise = "") {
  const auto at = object.find(key);
  if (at == object.end() || at->is_null()) return otherwise;
  if (!at->is_string()) throw std::invalid_argument(std::string("\"") + key + "\" is not a string");
  return at->get<std::string>();
}

std::map<std::string, std::string> packages_of(const json& object) {
  std::map<std::string, std::string> packages;
  if (const auto at = object.find("packages"); at != object.end() && at->is_object())
    for (const auto& [name, version] : at->items()) packages[name] = version.is_string() ? version.get<std::string>() : version.dump();
  return packages;
}

class ProcessSession final : public KernelSession {
 public:
  ProcessSession(const std::string& command, const SessionOptions& options) : command_(command), options_(options) {
    std::string problem = start();
    if (!problem.empty()) throw BadInput(problem);
  }
  const KernelInfo& info() const override { return info_; }
  Execution run(const Run& run, const std::string& case_id) override {
    return run_schedule(run, [&](const Run& call) { return run_call(call, case_id); });
  }

 private:
  // Starts the program and reads its declaration. Returns the empty string, or what went wrong, in one line.
  std::string start() {
    const std::string who = "adapter " + quoted_for_shell(command_) + ": ";
    process_.emplace(command_, options_.threads, options_.python_path);
    const json hello = {{"gdn_cts", kProtocolVersion}, {"hello", {{"suite", "gdn-cts"}}}};
    const auto reply = process_->exchange(hello.dump(), std::max(options_.start_seconds, options_.timeout_seconds));
    std::string wrong;
    if (reply.event != AdapterProcess::Event::line) {
      wrong = "before its declaration: " + reply.text;
    } else {
      const json answer = json::parse(reply.text, nullptr, false);
      if (answer.is_discarded() || !answer.is_object()) {
        wrong = "its declaration is no JSON object: '" + escaped(reply.text, 80) + "'";
      } else {
        try {
          declare(answer);
        } catch (const std::exception& e) {
          wrong = std::string("its declaration: ") + e.what();
        }
      }
    }
    if (wrong.empty()) return "";
    end_process();
    return who + wrong;
  }

  void declare(const json& answer) {
    if (const auto error = text_of(answer, "error"); !error.empty()) throw std::invalid_argument(escaped(error, 500));
    const auto version = answer.find("gdn_cts");
    if (version == answer.end() || !version->is_number_integer()) throw std::invalid_argument("\"gdn_cts\" (protocol version) is missing");
    if (version->get<int>() != kProtocolVersion)
      throw std::invalid_argument("protocol version " + version->dump() + ", this suite speaks " + std::to_string(kProtocolVersion));
    KernelInfo info;
    info.name = text_of(answer, "name");
    if (info.name.empty()) throw std::invalid_argument("\"name\" is missing");
    info.description = text_of(answer, "description");
    info.version = text_of(answer, "version");
    info.how = "--exec " + quoted_for_shell(command_);
    info.module = text_of(answer, "module");
    info.packages = packages_of(answer);
    info.device = text_of(answer, "device", "cpu");
    info.convention = parse_convention(text_of(answer, "convention"));
    info.contract = read_contract(text_of(answer, "contract"));
    info.capabilities = parse_capabilities(text_of(answer, "capabilities"));
    if (info.capabilities.strides) throw std::invalid_argument("strides cannot be declared: tensors come in files, always whole");
    info.properties = parse_properties(text_of(answer, "properties"));
    json declaration = answer;
    declaration.erase("packages");
    declaration.erase("module");                   // of the function that really ran; may be known only after a call
    if (!declaration_.is_null() && declaration != declaration_)
      throw std::invalid_argument("another one than at its first start");
    declaration_ = declaration;
    info_ = std::move(info);
  }

  void end_process() {
    if (process_) process_->kill();
    process_.reset();
  }

  // For slips after which nothing the program says can be trusted.
  Execution failure(Outcome outcome, const std::string& message) {
    end_process();
    Execution e;
    e.outcome = outcome;
    e.message = message;
    return e;
  }

  Execution run_call(const Run& call, const std::string& case_id) {
    Execution e;
    TensorSet inputs, expected;
    try {
      inputs = to_kernel(info_.convention, call);
      expected = output_shapes(info_.convention, call);
    } catch (const std::invalid_argument& reason) {
      e.outcome = Outcome::not_supported;
      e.message = reason.what();
      return e;
    }
    if (!process_)
      if (const std::string wrong = start(); !wrong.empty()) return failure(Outcome::crashed, "could not be started again: " + wrong);
    if (const std::string extra = process_->unsolicited(); !extra.empty())
      return failure(Outcome::error, "adapter wrote to stdout unasked, before this case: '" + escaped(extra, 80) + "'");

    if (scratch_.restored()) return failure(Outcome::error, kFolderGone);
    const std::int64_t id = ++last_id_;            // never used twice, nor is a file name: nothing late can be taken for an answer
    const RemoveAtEnd in{scratch_.path() / ("inputs-" + std::to_string(id) + ".h5")};
    const RemoveAtEnd out{scratch_.path() / ("outputs-" + std::to_string(id) + ".h5")};
    write_tensors(in.file, case_id, call.problem, inputs);
    const Problem& p = call.problem;
    std::int64_t longest = 0;
    for (const std::int64_t n : p.lengths) longest = std::max(longest, n);
    json request = {{"id", id}, {"case", case_id}, {"op", name(p.operation)}, {"rule", name(p.rule)},
                          {"problem", to_string(p)}, {"inputs", in.file.string()}, {"outputs", out.file.string()},
                          {"N", p.sequences()}, {"T", p.tokens() + p.padding}, {"H", kernel_heads(info_.convention, p)}, {"HV", p.value_heads},
                          {"K", p.key_dim}, {"V", p.value_dim}, {"max_length", longest}, {"scale", kernel_scale(info_.convention, call)}};
    if (p.operation == Operation::stages) {
      request["stage"] = name(p.stage);
      request["chunk"] = p.chunk;
    }
    if (p.layer()) {
      request["hidden"] = p.hidden;
      request["conv"] = p.conv;
      request["l2"] = name(p.l2);
    }
    const auto begin = std::chrono::steady_clock::now();
    const auto reply = process_->exchange(request.dump(), options_.timeout_seconds);
    e.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    switch (reply.event) {
      case AdapterProcess::Event::line: break;
      case AdapterProcess::Event::died:
      case AdapterProcess::Event::closed: return failure(Outcome::crashed, "adapter " + reply.text);
      case AdapterProcess::Event::silent: return failure(Outcome::timeout, "adapter: " + reply.text);
      case AdapterProcess::Event::flood: return failure(Outcome::error, "adapter: " + reply.text);
    }
    const json answer = json::parse(reply.text, nullptr, false);
    if (answer.is_discarded() || !answer.is_object())
      return failure(Outcome::error, "adapter wrote to stdout what is no JSON object: '" + escaped(reply.text, 80) + "'");
    if (const auto answered = answer.find("id"); answered == answer.end() || *answered != id)
      return failure(Outcome::error, "adapter answered id " + (answered == answer.end() ? "(none)" : escaped(answered->dump(), 40)) +
                                         " to request " + std::to_string(id));
    try {
      const std::string status = text_of(answer, "status"), message = escaped(text_of(answer, "message"), 500);
      if (status == "not_supported" || status == "error") {
        e.outcome = status == "error" ? Outcome::error : Outcome::not_supported;
        e.message = message.empty() ? "adapter said " + status + " without a message" : message;
        return e;
      }
      if (status != "ok")
        return failure(Outcome::error, "adapter answered status '" + escaped(status, 40) + "'; known: ok, not_supported, error");
      if (const auto s = answer.find("seconds"); s != answer.end() && s->is_number() && s->get<double>() >= 0) e.seconds = s->get<double>();
      if (const std::string module = text_of(answer, "module"); !module.empty()) info_.module = module;
      for (auto& [package, version] : packages_of(answer)) info_.packages[package] = version;
      if (const auto v = answer.find("violations"); v != answer.end() && v->is_array())
        for (const auto& line : *v) e.violations.push_back(escaped(line.is_string() ? line.get<std::string>() : line.dump(), 300));
    } catch (const std::invalid_argument& reason) {
      return failure(Outcome::error, std::string("adapter's answer: ") + reason.what());
    }
    return take_outputs(std::move(e), call, out.file, std::move(expected));
  }

  Execution take_outputs(Execution e, const Run& call, const fs::path& file, TensorSet expected) {
    auto wrong = [&](const std::string& message) {
      e.outcome = Outcome::error;
      e.message = message;
      e.outputs.clear();
      return e;
    };
    std::error_code error;
    if (scratch_.restored()) return wrong(kFolderGone);
    if (!fs::exists(file, error)) return wrong("adapter answered ok but wrote no output file");
    TensorSet written;
    try {
      written = read_tensors(file);
    } catch (const std::exception& reason) {
      return wrong(std::string("output file: ") + reason.what());
    }
    for (auto& [tensor, want] : expected) {
      const auto at = written.find(tensor);
      if (at == written.end()) {
        std::string there;
        for (const auto& [other, unused] : written) there += (there.empty() ? "" : ", ") + escaped(other, 40);
        return wrong("output file has no dataset " + tensor + " (it has: " + (there.empty() ? "none" : there) + ")");
      }
      if (at->second.shape != want.shape)
        return wrong("output " + tensor + " has shape " + shape_text(at->second.shape) + ", expected " + shape_text(want.shape));
      try {
        want = coerce(at->second, want.dtype);
      } catch (const std::invalid_argument& reason) {
        return wrong("output " + tensor + " " + reason.what() +
                     (is_floating(at->second.dtype) ? "; round it in the adapter (round_to in gdn_cts_adapter)" : ""));
      }
    }
    e.outputs = from_kernel(info_.convention, call, std::move(expected));
    return e;
  }

  std::string command_;
  SessionOptions options_;
  ScratchDirectory scratch_;
  std::optional<AdapterProcess> process_;
  KernelInfo info_;
  json declaration_;
  std::int64_t last_id_ = 0;
};

}  // namespace

std::unique_ptr<KernelSession> open_process(const std::string& command, const SessionOptions& o) {
  return std::make_unique<ProcessSession>(command, o);
}

}  // namespace gdn
