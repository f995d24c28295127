"""Statistics of private records: a public function, summed with noise and released once. No task is here yet."""
