// Subcommands of gdn-cts. One is one file in tools/cli/: a class derived from Command and a static RegisterCommand.
// A subcommand prints results with print(), progress through Progress (progress.h), and reports what is wrong by an
// exception: Usage, BadInput and std::invalid_argument exit 2, everything else exits 3 (main.cpp).
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace CLI { class App; }

namespace gdn::cli {

// Wrong use or bad input, one line. Exit status 2.
struct Usage : std::runtime_error { using std::runtime_error::runtime_error; };

// Declares the options of a subcommand. CLI11 stays behind it: its header costs every file that sees it 15 s.
// names as CLI11 takes them: "--report", "-o,--output". Variables must outlive the parse and keep their value when
// the option is not given.
class Options {
 public:
  explicit Options(CLI::App& app) : app_(app) {}
  void flag(const std::string& names, bool& value, const std::string& help);
  void option(const std::string& names, std::string& value, const std::string& what, const std::string& help);
  void option(const std::string& names, std::int64_t& value, const std::string& what, const std::string& help);
  void option(const std::string& names, std::uint64_t& value, const std::string& what, const std::string& help);
  void option(const std::string& names, double& value, const std::string& what, const std::string& help);
  // May be repeated; with comma, one argument may also hold several (not for case ids, which contain commas).
  void option(const std::string& names, std::vector<std::string>& value, const std::string& what, const std::string& help, bool comma);
  // Positional arguments, in order.
  void argument(const std::string& name, std::string& value, const std::string& help, bool required = true);
  void arguments(const std::string& name, std::vector<std::string>& value, const std::string& help);
  void footer(const std::string& text);            // after the options in --help

 private:
  CLI::App& app_;
};

class Command {
 public:
  virtual ~Command() = default;
  virtual std::string name() const = 0;
  virtual std::string summary() const = 0;         // one line for --help
  virtual int order() const = 0;                   // position in --help
  virtual void options(Options& o) = 0;
  virtual int run() = 0;                           // exit status
};
struct RegisterCommand { explicit RegisterCommand(Command* c); };

// Writes to standard output. A closed pipe (| head) ends the output, not the run: the exit status stays meaningful.
void print(std::string_view text);
// A message of the program itself on standard error: one line "gdn-cts: text".
void note(std::string_view text);

bool colour_output();                              // standard output is a terminal and NO_COLOR is not set
// How this program was called, quoted for a shell: so that printed lines work when pasted.
std::string invocation();
std::string shell_quote(std::string_view text);
// text with a leading "gdn-cts " replaced by invocation().
std::string as_invoked(const std::string& command_line);

// "2/8" as (1, 8). Throws Usage.
std::pair<std::size_t, std::size_t> parse_shard(const std::string& text);

}  // namespace gdn::cli
