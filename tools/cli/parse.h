// Parsing of the whole command line; kept apart so that only one file compiles CLI11.
#pragma once
#include "tools/cli/command.h"

namespace gdn::cli {

struct Parsed {
  Command* command = nullptr;                      // nullptr: print text and exit 0
  std::string text;                                // help or version
};
Parsed parse_command_line(int argc, char** argv, const std::vector<Command*>& commands);   // throws Usage

}  // namespace gdn::cli
