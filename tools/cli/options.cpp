// Options over CLI11, and the parsing of the whole command line; see command.h.
#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>

#include "reference/near_name.h"
#include "reference/standard.h"
#include "tools/cli/command.h"
#include "tools/cli/parse.h"

namespace gdn::cli {
namespace {

CLI::Option* named(CLI::Option* o, const std::string& what) { return o->type_name(what)->multi_option_policy(CLI::MultiOptionPolicy::Throw); }

// Reads a whole number or float and nothing else (CLI11 itself takes -1 for an unsigned number).
template <class Number>
CLI::callback_t reader(Number& value) {
  return [&value](const CLI::results_t& r) {
    const std::string& s = r.at(0);
    Number x{};
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), x);
    if (s.empty() || error != std::errc{} || end != s.data() + s.size()) return false;
    value = x;
    return true;
  };
}

}  // namespace

void Options::flag(const std::string& names, bool& value, const std::string& help) { app_.add_flag(names, value, help); }
void Options::option(const std::string& names, std::string& value, const std::string& what, const std::string& help) {
  // An empty value is a variable of some script that was not set, not a wish for the default.
  named(app_.add_option(names, value, help), what)->check([](const std::string& text) { return text.empty() ? "needs a value, this one is empty" : std::string(); });
}
void Options::option(const std::string& names, std::int64_t& value, const std::string& what, const std::string& help) {
  named(app_.add_option(names, reader(value), help), what)->default_str(std::to_string(value));
}
void Options::option(const std::string& names, std::uint64_t& value, const std::string& what, const std::string& help) {
  named(app_.add_option(names, reader(value), help), what)->default_str(std::to_string(value));
}
void Options::option(const std::string& names, double& value, const std::string& what, const std::string& help) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  named(app_.add_option(names, reader(value), help), what)->default_str(text);
}
void Options::option(const std::string& names, std::vector<std::string>& value, const std::string& what, const std::string& help, bool comma) {
  CLI::Option* o = app_.add_option(names, value, help)->type_name(what)->allow_extra_args(comma);
  if (comma) o->delimiter(',');
}
void Options::argument(const std::string& name, std::string& value, const std::string& help, bool required) {
  app_.add_option(name, value, help)->required(required)->type_name("");   // what an empty one means is said by the command
}
void Options::arguments(const std::string& name, std::vector<std::string>& value, const std::string& help) {
  app_.add_option(name, value, help)->required()->type_name("");
}
void Options::footer(const std::string& text) { app_.footer(text); }

Parsed parse_command_line(int argc, char** argv, const std::vector<Command*>& commands) {
  CLI::App app("GDN-CTS: does a Gated DeltaNet kernel compute what it should?", "gdn-cts");
  app.set_version_flag("--version", std::string("gdn-cts ") + kSuiteVersion + ", accuracy standard " + kAccuracyEdition);
  app.get_formatter()->column_width(34);
  app.footer("Exit status: 0 all passed; 1 a required case failed, is mistrusted or untested; 2 wrong use or bad input;\n"
             "3 the suite itself could not run. Results go to standard output, progress to standard error.");
  app.require_subcommand(1);
  for (Command* c : commands) {
    CLI::App* sub = app.add_subcommand(c->name(), c->summary());
    Options o(*sub);
    c->options(o);
  }
  Parsed p;
  const CLI::App* used = &app;
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    for (const CLI::App* s : app.get_subcommands()) used = s;
    p.text = used->help(used == &app ? "" : "gdn-cts");
    return p;
  } catch (const CLI::CallForVersion& e) {
    p.text = std::string(e.what()) + "\n";
    return p;
  } catch (const CLI::ParseError& e) {
    // CLI11 would only say that the word was not expected.
    if (app.get_subcommands().empty() && argc > 1 && argv[1][0] != '-') {
      std::vector<std::string> names;
      std::string all;
      for (const Command* c : commands) names.push_back(c->name());
      for (const std::string& n : names) all += (all.empty() ? "" : ", ") + n;
      std::string meant = did_you_mean(argv[1], names);
      if (meant.empty()) meant = "; there are " + all;
      throw Usage("no subcommand is called '" + std::string(argv[1]) + "'" + meant + " (gdn-cts --help says more)");
    }
    for (const CLI::App* s : app.get_subcommands()) used = s;
    const std::string help = "gdn-cts " + (used == &app ? "" : used->get_name() + " ") + "--help";
    throw Usage(std::string(e.what()) + " (" + help + " says more)");
  }
  for (Command* c : commands)
    if (app.got_subcommand(c->name())) p.command = c;
  return p;
}

}  // namespace gdn::cli
