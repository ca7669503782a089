// A program that answers one line per request line: started through /bin/sh -c in a process group of its own, and
// ended with all its children. Why: an adapter may die, hang, or flood its output, and the gate has to go on.
#pragma once
#include <sys/types.h>

#include <string>

namespace gdn {

class AdapterProcess {
 public:
  enum class Event { line, died, silent, flood, closed };
  struct Reply {
    Event event = Event::line;
    std::string text;   // the line; or what happened, one line that goes on with the program's last line on stderr
  };

  // Throws std::system_error when the process cannot be made (a command that does not exist dies instead).
  // threads > 0: OMP_NUM_THREADS and the like are set. python_path, when not empty, goes before PYTHONPATH.
  AdapterProcess(const std::string& command, int threads, const std::string& python_path);
  // Closes its input and gives it two seconds to end by itself; then it is killed, and whatever it started.
  ~AdapterProcess();
  AdapterProcess(const AdapterProcess&) = delete;
  AdapterProcess& operator=(const AdapterProcess&) = delete;

  // Writes the line and waits for one line. After anything but Event::line the process is of no more use.
  // Its stderr is read all the while. Event::flood: more than 1 MiB without a line end.
  Reply exchange(const std::string& request, double timeout_seconds);
  void kill();                                     // at once, with whatever it started; of no more use then
  // What it wrote since the last reply though nobody asked; empty when it kept quiet.
  std::string unsolicited();

 private:
  void read_into(int& fd, std::string& buffer, std::size_t keep);
  bool exited() const;                             // without reaping it, so that its process group keeps its number
  std::string how_it_died();
  std::string with_stderr(const std::string& what) const;
  void end(bool ask);

  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;              // our ends, non-blocking
  std::string output_, errors_;                    // unread output; tail of stderr
};

// At most `limit` characters of `text`, control characters and bytes past ASCII as \xNN.
std::string escaped(const std::string& text, std::size_t limit);

}  // namespace gdn
