# Made by packaging/formula.py out of pyproject.toml; do not edit. Not run on macOS yet.
class Foretool < Formula
  desc "MCP proxy that fore-sees the tool"
  homepage "https://github.com/owner-to-be-chosen/foretool"
  url "https://files.pythonhosted.org/packages/source/f/foretool/foretool-0.1.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license "Apache-2.0"

  depends_on "python@3.13"
  depends_on "uv"

  def install
    system "uv", "venv", "--python", Formula["python@3.13"].opt_bin/"python3.13", libexec
    system "uv", "pip", "install", "--python", libexec/"bin/python", buildpath
    bin.install_symlink libexec/"bin/foretool"
    generate_completions_from_executable(bin/"foretool", shell_parameter_format: :click)
  end

  service do
    run [opt_bin/"foretool", "serve", "--http"]
    keep_alive crashed: true
    environment_variables PATH: std_service_path_env
    log_path var/"log/foretool.log"
    error_log_path var/"log/foretool.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/foretool --version")
    (testpath/"mcp.json").write '{"mcpServers": {"gone": {"command": "no-such-program"}}}'
    assert_match "FT201", shell_output("#{bin}/foretool doctor --config #{testpath}/mcp.json", 1)
  end
end
