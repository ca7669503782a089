// main() for Catch2 v2, compiled once; v3 brings its own.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
