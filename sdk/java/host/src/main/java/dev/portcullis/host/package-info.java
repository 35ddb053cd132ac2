/**
 * Hosts of the Portcullis admission service mesh: programs that dial the dispatchers of a mesh and
 * serve admission hooks.
 *
 * <pre>{@code
 * Host host =
 *     Host.builder("imagepolicy")
 *         .dispatchers("portcullis-hosts.portcullis-system.svc:8444")
 *         .tls(Tls.files(Path.of("/tls/tls.crt"), Path.of("/tls/tls.key"), Path.of("/tls/ca.crt")))
 *         .validate(
 *             "imagepolicy.example.com",
 *             request ->
 *                 request.object().at("/spec/hostNetwork").asBoolean()
 *                     ? Response.deny("hostNetwork is not allowed here").cause("spec.hostNetwork", "must be false")
 *                     : Response.allow())
 *         .build();
 * host.run(); // until SIGTERM
 * }</pre>
 *
 * <p>A {@link dev.portcullis.host.Handler} is a function from a request to a verdict. Handlers run
 * on the threads of an executor, many at once, and never on those that read from the mesh. Objects
 * arrive byte for byte as the API server sent them, and are decoded when a handler asks.
 *
 * <p>Everything that is public here may be used from any thread, but for the builders.
 */
@NullMarked
package dev.portcullis.host;

import org.jspecify.annotations.NullMarked;
